//! Numbers as clients of Kubernetes send them. kubectl and all programs in Go write a number without a fraction as an integer:
//! the API server gets 2 for `2.0` in a file, and 1000 for `1e3`. So they are integers here too.

use serde_json::Value;

/// Below this a number without a fraction is an integer for the API server: 2 to the power of 63.
const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;

/// Replaces numbers that are whole by integers, in all fields.
pub(super) fn as_sent(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0);
            if let Some(whole) = whole.filter(|it| (-TOO_LARGE..TOO_LARGE).contains(it)) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_sent),
        Value::Object(fields) => fields.values_mut().for_each(as_sent),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
