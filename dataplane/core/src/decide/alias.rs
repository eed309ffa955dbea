//! One alias of ours: its records, and the name that it leads to (§3.5, RR77, RR85, RR95).

use alloc::sync::Arc;

use crate::decide::schema::Node;
use crate::relay::{Alias, Cnames};
use crate::wire::dname::Dname;
use crate::wire::labels::Labels;
use crate::wire::message::{Question, rtype};
use crate::wire::name::Name;
use crate::wire::reply::{Owner, Rdata, Reply};

/// The result of following one alias.
// A box would be an allocation.
#[allow(clippy::large_enum_variant)]
pub(super) enum Led {
    /// The alias leads to this name: decide about it next.
    To(Labels),
    /// The alias is the answer (RR46).
    Answered,
    /// It leads back, or there are too many (RR48).
    Loop,
    /// What the DNAME makes of the name is too long: YXDOMAIN (RFC 6672 §2.2).
    TooLong,
}

/// Writes the records of an alias and adds it to `aliases`; `None` for any other node. `owner` and `name` are the same
/// name.
#[inline]
pub(super) fn lead<'r>(
    node: Node<'r, '_>,
    (owner, name): (Owner<'_>, &Labels),
    question: &Question<'_>,
    aliases: &mut Cnames<'r>,
    reply: &mut Reply<'_, '_>,
) -> Option<Led> {
    match node {
        Node::Alias(next, ttl_s) => Some(cname(next, ttl_s, owner, question, aliases, reply)),
        Node::Dname(above) => {
            let target = Rdata::WholeName(above.target.wire());
            let _ =
                reply.answer(Owner::Name(above.owner.wire()), rtype::DNAME, above.ttl_s, target);
            Some(substituted(above, (owner, name), Alias::Dname(above), question, aliases, reply))
        }
        Node::Federated(end) => {
            Some(substituted(end, (owner, name), Alias::Federated(end), question, aliases, reply))
        }
        _ => None,
    }
}

fn cname<'r>(
    next: &'r Arc<Name>,
    ttl_s: u32,
    owner: Owner<'_>,
    question: &Question<'_>,
    aliases: &mut Cnames<'r>,
    reply: &mut Reply<'_, '_>,
) -> Led {
    let _ = reply.answer(owner, rtype::CNAME, ttl_s, Rdata::Name(next.wire()));
    if is_answered(question) {
        return Led::Answered;
    }
    match next.wire() != question.name.wire() && aliases.push(next, ttl_s) {
        true => Led::To(Labels::of(next)),
        false => Led::Loop,
    }
}

/// The CNAME that is made of a DNAME, with its TTL (RFC 6672 §3.1); also of the DNAME of a federation, which is not
/// shown (RR95).
fn substituted<'r>(
    dname: &'r Arc<Dname>,
    (owner, name): (Owner<'_>, &Labels),
    alias: Alias<'r>,
    question: &Question<'_>,
    aliases: &mut Cnames<'r>,
    reply: &mut Reply<'_, '_>,
) -> Led {
    let Some(next) = dname.substitute(name.wire()) else { return Led::TooLong };
    let _ = reply.answer(owner, rtype::CNAME, dname.ttl_s, Rdata::Name(next.wire()));
    if is_answered(question) {
        return Led::Answered;
    }
    if aliases.add(alias) { Led::To(Labels::of(&next)) } else { Led::Loop }
}

fn is_answered(question: &Question<'_>) -> bool {
    matches!(question.qtype, rtype::CNAME | rtype::ANY)
}
