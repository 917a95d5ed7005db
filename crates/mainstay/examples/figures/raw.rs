//! The references: the same work by the barest client over the same loopback.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// One kept connection that speaks just enough HTTP/1.1.
pub(crate) struct Raw {
    stream: TcpStream,
    host: SocketAddr,
    buffer: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(host: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            host,
            buffer: Vec::new(),
        })
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn exchange(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.stream.write_all(format!("{head}{body}").as_bytes()).await?;
        self.buffer.clear();
        loop {
            if let Some(whole) = self.is_whole() {
                if !self.buffer.starts_with(b"HTTP/1.1 200") {
                    bail!("{}", String::from_utf8_lossy(&self.buffer));
                }
                return if whole {
                    Ok(())
                } else {
                    bail!("more than the answer")
                };
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the connection closed");
            }
        }
    }

    /// `Some` once the answer is there; whether nothing follows it.
    fn is_whole(&self) -> Option<bool> {
        let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(self.buffer.get(..end)?).to_lowercase();
        let rest = self.buffer.get(end..)?;
        match head.split("content-length: ").nth(1) {
            Some(length) => {
                let length: usize = length.split("\r\n").next()?.trim().parse().ok()?;
                (rest.len() >= length).then_some(rest.len() == length)
            }
            None => rest.ends_with(b"0\r\n\r\n").then_some(true),
        }
    }
}

/// The bodies of the model calls of a turn, as an agent would send them.
pub(crate) fn bodies(message: &str, calls: u64) -> Vec<String> {
    let mut messages = vec![
        json!({"role": "system", "content": "Answer."}),
        json!({"role": "user", "content": message}),
    ];
    let tool = json!({"type": "function", "function": {"name": "get_order", "description": "Reads an order.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}});
    let body = |messages: &[Value]| {
        json!({"model": "mock", "stream": true, "messages": messages, "tools": [tool],
            "stream_options": {"include_usage": true}})
        .to_string()
    };
    let mut bodies = vec![body(&messages)];
    for call in 1..=calls {
        let id = format!("call_{call}");
        messages.push(json!({"role": "assistant", "content": "w", "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "get_order", "arguments": "{\"id\":1}"}}]}));
        messages.push(
            json!({"role": "tool", "tool_call_id": id, "content": "{\"id\":1,\"status\":\"shipped\"}"}),
        );
        bodies.push(body(&messages));
    }
    bodies
}
