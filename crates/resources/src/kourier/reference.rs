//! References from one object to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schemas;

/// An object by name, in the namespace of who refers to it unless another is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Name of the object.
    #[schemars(schema_with = "schemas::object_name")]
    pub name: String,
    /// Its namespace; the namespace of the object that refers to it when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::namespace")]
    pub namespace: Option<String>,
}

/// Declares a reference to one key of a Secret whose key has a usual name.
///
/// There is no namespace: the Secret is always in the namespace of the object that names it (AK-022, AK-061).
macro_rules! secret_reference {
    ($(#[$meta:meta])* $name:ident, $key:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Name of the Secret, in the namespace of this object.
            #[schemars(schema_with = "schemas::object_name")]
            pub name: String,
            /// Key inside the Secret.
            #[serde(default = $key)]
            #[schemars(schema_with = "schemas::secret_key")]
            pub key: String,
        }
    };
}

secret_reference!(
    /// The credential that is sent to a backend.
    TokenSecret,
    "token_key"
);
secret_reference!(
    /// The bot's token.
    BotTokenSecret,
    "bot_token_key"
);
secret_reference!(
    /// The app-level token that opens a socket.
    AppTokenSecret,
    "app_token_key"
);
secret_reference!(
    /// The secret that incoming requests are signed with.
    SigningSecret,
    "signing_secret_key"
);
secret_reference!(
    /// Certificates that a server is trusted by.
    AuthoritySecret,
    "authority_key"
);

fn token_key() -> String {
    "token".to_owned()
}

fn bot_token_key() -> String {
    "botToken".to_owned()
}

fn app_token_key() -> String {
    "appToken".to_owned()
}

fn signing_secret_key() -> String {
    "signingSecret".to_owned()
}

fn authority_key() -> String {
    "ca.crt".to_owned()
}
