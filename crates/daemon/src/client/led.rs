//! Connections that are led on: to another node, to the worker of another user, and to what answers there about streams.

use super::Client;
use crate::protocol::{Answer, Ask, Hello};
use std::os::unix::net::UnixStream;
use std::path::Path;
use stead_core::{Error, Kind, Result};
use stead_stream::Patience;

impl Client {
    /// Connects to the daemon of another node of the pool, by way of the one of this node that listens on this socket, or else as
    /// [`Client::connect`] finds it; none if there is none here. Of this node it is the one that is here.
    ///
    /// # Errors
    /// As [`Client::connect`]; `NotFound` if the pool has no such node, `Usage` if this daemon is in no pool, `Peer` if the one there
    /// is gone, `Permission` if it does not serve this user.
    pub fn connect_on(path: Option<&Path>, node: &str) -> Result<Option<Client>> {
        Client::led(path, Some(node), None)
    }

    /// Connects to the daemon that listens on this socket, or else as [`Client::connect`] finds it, as one of its administrators: for the
    /// transfers and flows of another user, whose number [`crate::user_number`] tells. They can be listed, waited for, cancelled and resumed; anything
    /// else is refused with `Permission`. None if there is no daemon.
    ///
    /// # Errors
    /// As [`Client::connect`]; `Permission` if this user is no administrator; `NotFound` if the other one has no transfers here, or is not
    /// known to the node; `Usage` if the daemon serves one user alone, who is another one; `Limit`; `Format` if the daemon is older than
    /// this question.
    pub fn manage(path: Option<&Path>, user: u32) -> Result<Option<Client>> {
        Client::led(path, None, Some(user))
    }

    /// Connects, and has the connection led on: to another node, and to the worker of another user there.
    pub(crate) fn led(
        path: Option<&Path>,
        node: Option<&str>,
        user: Option<u32>,
    ) -> Result<Option<Client>> {
        let found = || match path {
            Some(path) => Client::connect_to(path),
            None => Client::connect(),
        };
        if node.is_none() && user.is_none() {
            return found();
        }
        Client::patiently(|| {
            let Some(mut client) = found()? else { return Ok(None) };
            if let Some(node) = node {
                client = client.on(node)?;
            }
            match user {
                Some(user) => client.of(user).map(Some),
                None => Ok(Some(client)),
            }
        })
    }

    /// Turns it into a connection to another node.
    fn on(mut self, node: &str) -> Result<Client> {
        if node == self.hello.node {
            return Ok(self);
        }
        self.say(&Ask::Reach { node: node.to_owned() })?;
        let here = self.hello.node.clone();
        let (far, patience) = (Some(node.to_owned()), self.patience.as_ref());
        let far = Client::begin(self.stream, &self.path, far, patience)?;
        Ok(Client { here: Some(here), ..far })
    }

    /// Turns it into a connection to the worker of another user.
    fn of(mut self, user: u32) -> Result<Client> {
        self.say(&Ask::Manage { user })?;
        let managed = Client::begin(self.stream, &self.path, self.far, self.patience.as_ref())?;
        match managed.hello.user == user {
            true => Ok(Client { here: self.here, ..managed }),
            false => managed.odd(),
        }
    }

    /// A connection about streams to the worker of this user on a node, by way of the daemon that listens on this socket, or else as
    /// [`Client::connect`] finds it; none if there is none here. All that leads there, what it is for, and these bytes are said at once:
    /// nodes are asked often, and each answer that is waited for is a way there and back.
    ///
    /// # Errors
    /// As [`Client::connect_on`]; what the worker refuses it with; `Timeout`, and that of what ends the wait.
    pub(crate) fn stream_on(
        path: Option<&Path>,
        node: &str,
        asked: &Ask,
        first: &[u8],
        patience: &Patience,
    ) -> Result<Option<UnixStream>> {
        let asks = Client::patiently(|| {
            let Some(client) = Client::found(path, patience)? else { return Ok(None) };
            // Those of a pool are of one version: the worker there understands what it is told before it has said who it is. It is not tried
            // again for another one.
            let asks = of_this_version(&client.hello);
            asks.map_or_else(|e| Ok(Err(e)), |()| client.asks(node, asked, first).map(Ok)).map(Some)
        })?;
        asks.map(|client| client?.has_stream()).transpose()
    }

    /// Says all that it is to do there. Who has said who it is there has not heard any of it before.
    fn asks(mut self, node: &str, asked: &Ask, first: &[u8]) -> Result<Client> {
        if node == self.hello.node {
            self.put(&[asked], first)?;
            return Ok(self);
        }
        self.put(&[&Ask::Reach { node: node.to_owned() }, asked], first)?;
        let (far, patience) = (Some(node.to_owned()), self.patience.as_ref());
        Client::begin(self.stream, &self.path, far, patience)
    }

    /// The connection, of which the other end was told that it is to be one about streams.
    pub(crate) fn has_stream(mut self) -> Result<UnixStream> {
        of_this_version(&self.hello)?;
        match self.answer()? {
            Answer::Stream {} => Ok(self.stream),
            _ => self.odd(),
        }
    }
}

/// What streams say to each other is understood by the same version.
fn of_this_version(hello: &Hello) -> Result<()> {
    let (here, there, node) = (env!("CARGO_PKG_VERSION"), &hello.version, &hello.node);
    if there == here {
        return Ok(());
    }
    let message = format!("node '{node}' has stead {there}, and this program {here}");
    Err(Error::new(Kind::Peer, message)
        .with_hint("streams go between nodes of the same version of stead"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use crate::protocol::{Failed, PROTOCOL, StreamWay};
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;
    use stead_stream::Stop;

    fn hello(node: &str, version: &str, user: u32) -> serde_json::Value {
        serde_json::json!({
            "protocol": PROTOCOL, "version": version, "node": node, "user": user, "drained": false, "job": null
        })
    }

    #[test]
    fn a_connection_is_led_to_the_worker_of_another_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let leads = std::thread::spawn(move || {
            let hello = |user: u32| hello("n0", "0", user);
            let refused = Failed::from(&Error::new(Kind::Permission, "no"));
            for answer in [hello(7), hello(8), serde_json::json!({ "failed": refused })] {
                let (mut stream, _) = listener.accept().unwrap();
                frame::write(&mut stream, &hello(0)).unwrap();
                let ask = frame::read::<Ask>(&mut stream).unwrap().unwrap();
                assert_eq!(ask, Ask::Manage { user: 7 });
                frame::write(&mut stream, &answer).unwrap();
            }
        });
        let manage = || Client::manage(Some(&path), 7);
        assert_eq!(manage().unwrap().unwrap().hello().user, 7);
        // Somebody else answers.
        assert_eq!(manage().err().unwrap().kind(), Kind::Format);
        assert_eq!(manage().err().unwrap().kind(), Kind::Permission);
        leads.join().unwrap();
        assert!(manage().unwrap().is_none());
    }

    #[test]
    fn what_leads_to_a_stream_and_what_is_said_there_first_comes_at_once() {
        const HERE: &str = env!("CARGO_PKG_VERSION");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = Ask::Stream { number: 9, way: StreamWay::Asks };
        let patience = Patience::new(Duration::from_secs(60), Stop::default());
        let on = |node: &str| Client::stream_on(Some(&path), node, &asked, b"find", &patience);
        let begins = |version: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            frame::write(&mut stream, &hello("n0", version, 0)).unwrap();
            stream
        };
        // Nothing is answered before all of it is here.
        let hears = |stream: &mut UnixStream, asks: &[Ask]| {
            for ask in asks {
                assert_eq!(frame::read::<Ask>(stream).unwrap().as_ref(), Some(ask));
            }
            let mut first = [0; 4];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"find");
        };
        let reach = Ask::Reach { node: "n1".to_owned() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = begins(HERE);
                hears(&mut stream, &[reach.clone(), asked.clone()]);
                frame::write(&mut stream, &hello("n1", HERE, 0)).unwrap();
                frame::write(&mut stream, &Answer::Stream {}).unwrap();
                frame::write(&mut stream, &"then").unwrap();
                // Of this node nothing leads on.
                let mut stream = begins(HERE);
                hears(&mut stream, std::slice::from_ref(&asked));
                frame::write(&mut stream, &Answer::Stream {}).unwrap();
                // Why it is refused is heard, also when the connection is closed with what was said in it.
                let mut stream = begins(HERE);
                assert_eq!(frame::read::<Ask>(&mut stream).unwrap().as_ref(), Some(&reach));
                let refused = Failed::from(&Error::new(Kind::NotFound, "no such node"));
                frame::write(&mut stream, &Answer::Failed(refused)).unwrap();
                drop(stream);
                // Whoever speaks otherwise is told nothing.
                let mut stream = begins("0.0.0");
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            });
            let mut stream = on("n1").unwrap().unwrap();
            assert_eq!(frame::read::<String>(&mut stream).unwrap().as_deref(), Some("then"));
            on("n0").unwrap().unwrap();
            assert_eq!(on("n1").unwrap_err().kind(), Kind::NotFound);
            let e = on("n1").unwrap_err();
            assert!(e.kind() == Kind::Peer && e.to_string().contains("0.0.0"), "{e}");
        });
    }
}
