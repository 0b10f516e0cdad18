// A phone in a page, by either library: `window.phone.start(server, uri)`, `.call(uri)`, `.hangup()`. It answers calls
// by itself and says what happens on the console.

import { Inviter, Registerer, SessionState, UserAgent } from "sip.js";
import JsSIP from "jssip";

const say = (text) => console.log(text);
const library = new URL(location.href).searchParams.get("library");

// Says `media` once audio packets have come in.
async function watch(connection) {
  connection.onconnectionstatechange = () => say(`connection ${connection.connectionState}`);
  while (connection.connectionState !== "closed") {
    for (const report of (await connection.getStats()).values()) {
      if (report.type === "inbound-rtp" && report.packetsReceived > 10) {
        say("media");
        return;
      }
    }
    await new Promise((later) => setTimeout(later, 100));
  }
}

function withSipJs() {
  let agent;
  let session;
  function follow(next) {
    session = next;
    session.stateChange.addListener((state) => {
      if (state === SessionState.Established) {
        say("established");
        watch(session.sessionDescriptionHandler.peerConnection);
      } else if (state === SessionState.Terminated) {
        say("ended");
      }
    });
  }
  const onInvite = (invitation) => {
    say("ringing");
    follow(invitation);
    invitation.accept().catch((error) => say(`failed: ${error.message}`));
  };
  return {
    async start(server, uri) {
      agent = new UserAgent({
        uri: UserAgent.makeURI(uri),
        transportOptions: { server },
        sessionDescriptionHandlerFactoryOptions: { iceGatheringTimeout: 500 },
        delegate: { onInvite },
        logLevel: "warn",
      });
      await agent.start();
      const registerer = new Registerer(agent);
      registerer.stateChange.addListener((state) => say(String(state).toLowerCase()));
      await registerer.register();
    },
    async call(uri) {
      const inviter = new Inviter(agent, UserAgent.makeURI(uri));
      follow(inviter);
      await inviter.invite();
    },
    async hangup() {
      await session.bye();
    },
  };
}

function withJsSip() {
  let agent;
  let session;
  return {
    async start(server, uri) {
      agent = new JsSIP.UA({ sockets: [new JsSIP.WebSocketInterface(server)], uri, register: true });
      agent.on("registered", () => say("registered"));
      agent.on("registrationFailed", (event) => say(`failed: registration, ${event.cause}`));
      agent.on("newRTCSession", (event) => {
        session = event.session;
        session.on("peerconnection", ({ peerconnection }) => watch(peerconnection));
        session.on("confirmed", () => say("established"));
        session.on("ended", () => say("ended"));
        session.on("failed", ({ cause }) => say(`failed: ${cause}`));
        if (event.originator === "remote") {
          say("ringing");
          session.answer({ mediaConstraints: { audio: true, video: false } });
        } else if (session.connection) {
          watch(session.connection);
        }
      });
      agent.start();
    },
    async call(uri) {
      agent.call(uri, { mediaConstraints: { audio: true, video: false } });
    },
    async hangup() {
      session.terminate();
    },
  };
}

window.phone = library === "jssip" ? withJsSip() : withSipJs();
