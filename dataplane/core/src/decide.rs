//! Decides what happens to one query. `respond` is the flow: `route` says whose the name is, `schema`, `reverse` and
//! `federations` what exists, `answer`, `alias`, `chaos` and `loop_probe` write it. `resolution` follows a chain that
//! leads from an upstream back to a name of ours. `found` is what the trees have for a name; `ahead` searches them for a
//! whole batch. `trace` says afterwards what a decision rested on.

pub(crate) mod respond;

mod alias;

pub(crate) mod found;

pub(crate) mod route;

pub(crate) mod schema;

mod federations;

pub(crate) mod reverse;

pub(crate) mod answer;

pub(crate) mod chaos;

pub(crate) mod loop_probe;

pub(crate) mod resolution;

pub(crate) mod ahead;

pub(crate) mod trace;
