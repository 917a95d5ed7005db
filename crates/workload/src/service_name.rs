//! The names by which a workload calls a Service.

/// A host name taken apart, as one of `name`, `name.namespace`, `name.namespace.svc` and
/// `name.namespace.svc.cluster.local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceName<'a> {
    /// The Service.
    pub service: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Whether only a Service can have this name: it ends in `.svc` or `.svc.cluster.local`.
    pub certain: bool,
}

impl<'a> ServiceName<'a> {
    /// The Service that `host`, in lower case, may name to a workload in `from_namespace`; `None` for a name of another form.
    pub fn parse(host: &'a str, from_namespace: &'a str) -> Option<Self> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let (rest, certain) = match host
            .strip_suffix(".svc.cluster.local")
            .or_else(|| host.strip_suffix(".svc"))
        {
            Some(rest) => (rest, true),
            None => (host, false),
        };
        let mut labels = rest.split('.');
        let (service, namespace) = match (labels.next(), labels.next(), labels.next()) {
            (Some(service), Some(namespace), None) => (service, namespace),
            (Some(service), None, None) if !certain => (service, from_namespace),
            _ => return None,
        };
        (!service.is_empty() && !namespace.is_empty()).then_some(Self {
            service,
            namespace,
            certain,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_a_services_name_are_taken_apart() {
        let name = |service, namespace, certain| {
            Some(ServiceName {
                service,
                namespace,
                certain,
            })
        };
        for (host, expected) in [
            ("orders", name("orders", "shop", false)),
            ("orders.other", name("orders", "other", false)),
            ("orders.other.svc", name("orders", "other", true)),
            ("orders.other.svc.cluster.local.", name("orders", "other", true)),
            ("orders.svc", None),
            ("a.b.c", None),
            ("", None),
            (".x", None),
        ] {
            assert_eq!(ServiceName::parse(host, "shop"), expected, "{host}");
        }
    }
}
