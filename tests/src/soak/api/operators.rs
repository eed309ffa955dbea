//! The operators of a soak: one acts, the other stands by. Each has its way to the API server, which fails together with
//! that of the data plane of the same number, as on one node.

use std::collections::BTreeMap;
use std::path::Path;

use crate::fault_proxy::FaultProxy;
use crate::operator::Operator;
use crate::soak::health::{counters, gone_back};
use crate::soak::objects::CONFIG_NAMESPACE;
use crate::soak::schedule::PODS;
use crate::usage::Usage;

#[derive(Debug)]
pub(super) struct Operators {
    all: Vec<Beside>,
    starts: u64,
    /// The most memory that one had.
    most_mib: f64,
}

#[derive(Debug)]
struct Beside {
    operator: Option<Operator>,
    proxy: FaultProxy,
    /// The counters of this process as they were read last.
    counters: BTreeMap<String, f64>,
}

impl Operators {
    /// Starts one beside each data plane.
    pub(super) async fn start(api: &Path) -> Operators {
        let mut operators = Operators { all: Vec::new(), starts: 0, most_mib: 0.0 };
        for _ in 0..PODS {
            let proxy = FaultProxy::before(api).await;
            operators.all.push(Beside { operator: None, proxy, counters: BTreeMap::new() });
        }
        (0..PODS).for_each(|number| operators.start_one(number));
        operators
    }

    pub(super) fn proxy(&self, number: usize) -> &FaultProxy {
        &self.all[number].proxy
    }

    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    pub(super) fn most_mib(&self) -> f64 {
        self.most_mib
    }

    pub(super) fn start_one(&mut self, number: usize) {
        let beside = &mut self.all[number];
        let kubeconfig = beside.proxy.kubeconfig();
        beside.operator = Some(Operator::start_in(CONFIG_NAMESPACE, kubeconfig, CONFIG_NAMESPACE));
        beside.counters.clear();
        self.starts += 1;
    }

    pub(super) fn kill(&mut self, number: usize) {
        self.all[number].operator = None;
    }

    pub(super) fn pause(&mut self, number: usize) {
        if let Some(operator) = &mut self.all[number].operator {
            operator.process().pause();
        }
    }

    pub(super) fn resume(&mut self, number: usize) {
        if let Some(operator) = &mut self.all[number].operator {
            operator.process().resume();
        }
    }

    /// Starts those again that have ended by themselves, as a kubelet does: one that has lost its lease ends. Says what
    /// none of them may do.
    pub(super) fn keep_running(&mut self) -> Vec<String> {
        let mut finds = Vec::new();
        for number in 0..self.all.len() {
            let Some(operator) = &mut self.all[number].operator else { continue };
            let Some(status) = operator.process().exited() else { continue };
            let log = operator.log();
            if log.contains("panicked") {
                finds.push(format!("an operator ended ({status})\n{log}"));
            }
            self.start_one(number);
        }
        finds
    }

    /// Memory and counters, while nothing is wrong with them; says which counters went back.
    pub(super) fn inspect(&mut self) -> Vec<String> {
        let mut finds = Vec::new();
        for (number, beside) in self.all.iter_mut().enumerate() {
            let Some(operator) = &mut beside.operator else { continue };
            if let Some(pid) = operator.process().pid() {
                self.most_mib = self.most_mib.max(Usage::of(pid).resident_mib());
            }
            let after = counters(&operator.page("/metrics"));
            // One that has just ended answers nothing.
            if !after.is_empty() {
                let back = gone_back(&beside.counters, &after);
                finds.extend(back.iter().map(|back| format!("operator {number}: {back}")));
                beside.counters = after;
            }
        }
        finds
    }
}
