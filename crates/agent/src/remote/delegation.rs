//! Delegation tokens of an agent's process: the server signs, and says itself whose process it is (OM-414).

use async_trait::async_trait;
use mainstay_tools::delegation::{DelegationError, DelegationRequest, DelegationSigner};
use mainstay_workload::process::calls::Caller;
use secrecy::SecretString;

use super::protocol::{ANSWERED_WITHIN, Ask, ask};

/// Asks the server for signatures. The key never leaves it.
#[derive(Debug, Clone)]
pub struct RemoteSigner {
    caller: Caller,
}

impl RemoteSigner {
    /// A signer that asks by `caller`.
    pub fn new(caller: Caller) -> Self {
        Self { caller }
    }
}

#[async_trait]
impl DelegationSigner for RemoteSigner {
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError> {
        let DelegationRequest {
            end_user,
            session,
            registry,
            handler,
            // Whose process it is the server knows, and does not take anybody's word for it.
            agent: _,
            namespace: _,
        } = request.clone();
        let asked = Ask::Sign {
            end_user,
            session,
            registry,
            handler,
        };
        let signed: Result<String, _> = ask(&self.caller, &asked, ANSWERED_WITHIN).await;
        signed.map(SecretString::from).map_err(|error| DelegationError {
            message: error.to_string(),
        })
    }
}
