//! Connections to endpoints. This is the one place that permits or refuses an address, after the name is
//! resolved.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use crate::address::{Network, not_public};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The resolution of names to addresses.
pub(crate) trait Resolve: Send + Sync + 'static {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>>;
}

/// The resolver of the system.
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{address} is {kind}")]
    NotPublic { address: IpAddr, kind: &'static str },
    #[error("the name cannot be resolved: {0}")]
    Name(io::Error),
    #[error("no connection: {0}")]
    Refused(io::Error),
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
}

/// Connects to addresses that are public or allowed. It connects to the address that it has checked, so that
/// no later answer of a name server can change it.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) networks: Arc<[Network]>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) timeout: Duration,
}

impl Connector {
    async fn connect(self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.resolver.resolve(host, port).await.map_err(ConnectError::Name)?,
        };
        let mut error = ConnectError::Name(io::ErrorKind::NotFound.into());
        for address in addresses {
            if let Some(kind) = self.refusal(address.ip()) {
                // The error of an address that was tried says more.
                if !matches!(error, ConnectError::Refused(_)) {
                    error = ConnectError::NotPublic { address: address.ip(), kind };
                }
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Each request is written at once, so that waiting for more bytes would only cost time.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Err(refused) => error = ConnectError::Refused(refused),
            }
        }
        Err(error)
    }

    fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let is_allowed = self.networks.iter().any(|network| network.contains(address));
        not_public(address).filter(|_| !is_allowed)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = BoxFuture<Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (this, limit) = (self.clone(), self.timeout);
        Box::pin(async move {
            let connected = timeout(limit, this.connect(uri)).await;
            connected.unwrap_or(Err(ConnectError::TimedOut(limit)))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A name server under an attacker's control.
    struct Says(&'static str);

    impl Resolve for Says {
        fn resolve(&self, _: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
            let addresses = self.0.split(' ').map(|address| SocketAddr::new(address.parse().unwrap(), port));
            let addresses = addresses.collect();
            Box::pin(async move { Ok(addresses) })
        }
    }

    async fn connect(uri: &str, says: &'static str, allowed: &[&str]) -> Result<(), ConnectError> {
        let networks = allowed.iter().map(|network| network.parse().unwrap()).collect();
        let limit = Duration::from_secs(5);
        let mut connector = Connector { networks, resolver: Arc::new(Says(says)), timeout: limit };
        connector.call(uri.parse().unwrap()).await.map(drop)
    }

    #[tokio::test]
    async fn an_address_is_refused_after_its_name_is_resolved() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("https://hooks.example.com:{port}/");
        for says in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1 fd00:ec2::254"] {
            let refused = connect(&name, says, &[]).await;
            assert!(matches!(refused, Err(ConnectError::NotPublic { .. })), "{says}: {refused:?}");
        }
        connect(&name, "10.0.0.1 127.0.0.1", &["127.0.0.0/8"]).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_in_the_url_is_refused() {
        for host in ["127.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a9fe:a9fe]", "169.254.169.254"] {
            let refused = connect(&format!("http://{host}:1/"), "1.1.1.1", &["192.168.0.0/16"]).await;
            assert!(matches!(refused, Err(ConnectError::NotPublic { .. })), "{host}: {refused:?}");
        }
    }

    /// `getaddrinfo` accepts old notations of addresses. The resulting address is checked, too.
    #[tokio::test]
    async fn other_ways_to_write_an_address_do_not_pass() {
        for host in ["localhost", "127.1", "0x7f.1", "2130706433", "0"] {
            let uri = format!("http://{host}:1/").parse().unwrap();
            let limit = Duration::from_secs(5);
            let mut connector = Connector { networks: [].into(), resolver: Arc::new(System), timeout: limit };
            let refused = connector.call(uri).await.map(drop);
            // Some systems do not resolve these notations.
            assert!(
                matches!(refused, Err(ConnectError::NotPublic { .. } | ConnectError::Name(_))),
                "{host}: {refused:?}"
            );
        }
    }
}
