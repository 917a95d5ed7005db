//! Probes of containers, and what is run when they start and stop.

use serde_json::json;

use super::{Errors, Field, formats};

const GET_SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const GET_PROTOCOLS: [&str; 2] = ["HTTP1", "HTTP2"];
const RPC_MODES: [&str; 2] = ["Plaintext", "TLS"];
/// The signals that a container may be stopped with, but for the real-time ones.
const SIGNALS: [&str; 35] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMIN",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
];
const LAST_SIGNAL: &str = "SIGXFSZ";
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// What a container's probes and its lifecycle depend on.
pub(super) struct Pod<'object> {
    /// How long the Pod's containers have to stop, in seconds.
    pub(super) grace: Option<i64>,
    /// The operating system that the Pod is for, if it says so.
    pub(super) system: Option<&'object str>,
}

/// What is wrong with the lifecycle and the probes of a container.
pub(super) fn check(container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    let lifecycle = container.child("lifecycle");
    for name in ["postStart", "preStop"] {
        let handler = lifecycle.child(name);
        if handler.is_set() {
            check_handler(
                &handler,
                &["exec", "httpGet", "tcpSocket", "sleep"],
                pod.grace,
                errors,
            );
        }
    }
    let signal = lifecycle.child("stopSignal");
    if signal.is_set() {
        check_signal(&signal, pod.system, errors);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.child(name);
        if !probe.is_set() {
            continue;
        }
        check_probe(&probe, pod.grace, errors);
        let period = probe.child("terminationGracePeriodSeconds");
        if name == "readinessProbe" {
            if period.is_set() {
                period.invalid(errors, "must not be set for readinessProbes");
            }
        } else if probe.number_of("successThreshold") != 1 {
            probe.child("successThreshold").invalid(errors, "must be 1");
        }
    }
}

fn check_probe(probe: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, errors);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        probe.child(name).not_negative(errors);
    }
    let period = probe.child("terminationGracePeriodSeconds");
    if period.number().is_some_and(|seconds| seconds <= 0) {
        period.invalid(errors, "must be greater than 0");
    }
}

fn check_handler(field: &Field<'_>, kinds: &[&str], grace: Option<i64>, errors: &mut Errors) {
    let mut is_given = false;
    for kind in kinds {
        let handler = field.child(kind);
        if !handler.is_set() {
            continue;
        }
        if is_given {
            handler.forbidden(errors, "may not specify more than 1 handler type");
            continue;
        }
        is_given = true;
        match *kind {
            "exec" => {
                let command = handler.child("command");
                if command.count() == 0 {
                    command.required(errors, "");
                }
            }
            "httpGet" => check_get(&handler, errors),
            "tcpSocket" => check_port(&handler.child("port"), errors),
            "grpc" => {
                check_port(&handler.child("port"), errors);
                handler.child("mode").one_of_if_set(errors, &RPC_MODES);
            }
            _ => {
                let seconds = handler.number_of("seconds");
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    handler.invalid_as(errors, json!(seconds), detail);
                }
            }
        }
    }
    if !is_given {
        field.required(errors, "must specify a handler type");
    }
}

fn check_get(get: &Field<'_>, errors: &mut Errors) {
    get.child("path").demand(errors);
    check_port(&get.child("port"), errors);
    let scheme = get.child("scheme");
    if !GET_SCHEMES.contains(&scheme.text()) {
        scheme.not_supported(errors, &GET_SCHEMES);
    }
    let headers = get.child("httpHeaders");
    for header in headers.items() {
        // The reference names the list.
        let name = header.child("name").at(headers.path.clone());
        name.texts(errors, formats::header_name(name.text()));
    }
    let protocol = get.child("protocol");
    protocol.one_of_if_set(errors, &GET_PROTOCOLS);
    if protocol.text() == "HTTP2" {
        if scheme.text() != "HTTP" {
            protocol.invalid(errors, "is only supported with HTTP (H2C)");
        } else if !get.text_of("host").is_empty() {
            let detail = "must be empty when `protocol` is \"HTTP2\"";
            get.child("host").invalid(errors, detail);
        }
    }
}

/// What is wrong with a port that is a number or the name of one.
pub(crate) fn check_port(port: &Field<'_>, errors: &mut Errors) {
    if port.value.is_string() {
        port.texts(errors, formats::port_name(port.text()));
        return;
    }
    let number = port.number().unwrap_or_default();
    for message in formats::port_number(number) {
        port.invalid_as(errors, json!(number), message);
    }
}

fn check_signal(signal: &Field<'_>, system: Option<&str>, errors: &mut Errors) {
    let name = signal.text();
    match system {
        None => signal.forbidden(errors, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => signal.one_of_if_set(errors, &WINDOWS_SIGNALS),
        Some("linux") => {
            let real_time: Vec<String> = (1..=14)
                .map(|number| format!("SIGRTMAX-{number}"))
                .chain((1..=15).map(|number| format!("SIGRTMIN+{number}")))
                .collect();
            let mut all: Vec<&str> = SIGNALS.to_vec();
            all.push(LAST_SIGNAL);
            all.extend(real_time.iter().map(String::as_str));
            all.sort_unstable();
            if !all.contains(&name) {
                signal.not_supported(errors, &all);
            }
        }
        Some(_) => {}
    }
}
