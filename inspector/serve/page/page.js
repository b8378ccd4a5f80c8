// What the page adds to textual.js, which draws the terminal and carries keys: loaded before it.
"use strict";
(() => {
  const MOST_PASTED = 2 ** 20; // characters; the server ends a session for a message that is longer
  const SAID_MS = 6000;
  const found = (id) => document.getElementById(id);

  // The token is used up: out of the address, the history and whatever is copied from there.
  history.replaceState(null, "", "/");

  // A click on what looks like an address in a model's text opens nothing.
  window.open = () => null;

  const say = (text) => {
    found("said").textContent = text;
    found("said").hidden = false;
    setTimeout(() => { found("said").hidden = true; }, SAID_MS);
  };

  window.WebSocket = class extends WebSocket {
    constructor(url) {
      super(url);
      this.addEventListener("open", () => document.querySelector(".xterm-helper-textarea").focus());
      this.addEventListener("close", (event) => {
        found("why").textContent = event.reason || "The connection to the program was lost.";
        found("again").focus();
      });
    }

    send(data) {
      if (this.readyState !== WebSocket.OPEN) return;
      if (data.length > MOST_PASTED) say("Not pasted: it has more than 1,048,576 characters. Save it as a file there.");
      else super.send(data);
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    found("terminal").dataset.sessionWebsocketUrl = `${location.origin.replace(/^http/, "ws")}/ws`;
    found("again").addEventListener("click", () => location.reload());
  });
})();
