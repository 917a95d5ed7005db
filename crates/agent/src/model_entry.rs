//! A provider entry of an agent, as a turn uses it.

use std::sync::Arc;

use mainstay_llm::config::ProviderConfig;
use mainstay_llm::{Model, Usage};

use crate::budget::Budget;

/// One provider entry.
#[derive(Debug, Clone)]
pub struct ModelEntry {
    /// Name of the entry in the agent; `default` is chosen first (OM-136).
    pub name: String,
    /// Model name, for overrides and records; may be empty.
    pub model_name: String,
    /// The model.
    pub model: Arc<dyn Model>,
    /// Whether the model can be offered tools (OM-495).
    pub offers_tools: bool,
    /// Tokens the model can read at once; unset means that nothing is cut in advance.
    pub context_window: Option<u64>,
    /// Tokens of the window that are kept free for the answer.
    pub answer_reserve: u64,
    /// Prices (OM-497).
    pub prices: Prices,
    /// What may be spent on the provider, where that is limited (OM-204).
    pub budget: Option<Budget>,
}

/// Prices in USD per thousand tokens (OM-181).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prices {
    /// Of the request.
    pub input: Option<f64>,
    /// Of the answer.
    pub output: Option<f64>,
    /// Of cached tokens of the request; without it they cost as much as others.
    pub cached: Option<f64>,
}

impl ModelEntry {
    /// The entry of a rendered provider with the model that was built for it.
    pub fn from_config(config: &ProviderConfig, model: Arc<dyn Model>) -> Self {
        let price = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        let prices = config
            .pricing
            .as_ref()
            .map_or_else(Prices::default, |pricing| Prices {
                input: price(&pricing.input_cost_per_1k),
                output: price(&pricing.output_cost_per_1k),
                cached: price(&pricing.cached_cost_per_1k),
            });
        Self {
            name: config.name.clone(),
            model_name: config.model.clone(),
            model,
            offers_tools: config.offers_tools(),
            context_window: config.defaults.context_window,
            answer_reserve: config.defaults.max_tokens.unwrap_or(0),
            prices,
            budget: None,
        }
    }

    /// An entry with defaults for a model that has no configuration.
    pub fn plain(name: &str, model: Arc<dyn Model>) -> Self {
        Self {
            name: name.to_owned(),
            model_name: String::new(),
            model,
            offers_tools: true,
            context_window: None,
            answer_reserve: 0,
            prices: Prices::default(),
            budget: None,
        }
    }
}

impl Prices {
    /// Cost of one call in USD; `None` without a price for the request or the answer (OM-497).
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let input = self.input.unwrap_or(0.0);
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        let thousandths = fresh as f64 * input
            + cached as f64 * self.cached.unwrap_or(input)
            + usage.output_tokens as f64 * self.output.unwrap_or(0.0);
        Some(thousandths / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn om_497_cached_tokens_have_their_own_price() {
        let usage = Usage {
            input_tokens: 1_000,
            output_tokens: 500,
            cached_tokens: 400,
        };
        let mut prices = Prices {
            input: Some(1.0),
            output: Some(2.0),
            cached: None,
        };
        assert_eq!(prices.cost(&usage), Some(2.0));
        prices.cached = Some(0.5);
        assert_eq!(prices.cost(&usage), Some(1.8));
        assert_eq!(Prices::default().cost(&usage), None);
    }
}
