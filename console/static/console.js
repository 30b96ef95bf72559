// Without this script all pages work: it adds the theme, the key "/", local times, and what is live.
const root = document.documentElement;
const saved = localStorage.getItem("theme");
if (saved) root.dataset.theme = saved;

document.getElementById("theme").addEventListener("click", () => {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    document.getElementById("q").focus();
  }
});

// The server writes times in UTC; the reader's time zone is in the title.
function localTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.dateTime).toLocaleString(root.lang, { timeZoneName: "short" });
  }
}
localTimes(document);

// A part of a page that the server sends again with each sample. While a person reads another tab,
// or has something of the part in focus, it stays as it is.
const live = document.querySelector("[data-events]");
if (live) {
  let source = null;
  const state = document.getElementById("live-state");
  const follow = () => {
    source = new EventSource(live.dataset.events);
    source.onopen = () => { state.dataset.state = "live"; };
    source.onerror = () => { state.dataset.state = "lost"; };
    source.onmessage = (event) => {
      if (live.contains(document.activeElement)) return;
      live.innerHTML = JSON.parse(event.data);
      localTimes(live);
    };
  };
  const stop = () => { if (source) source.close(); source = null; };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else if (!source) follow();
  });
  addEventListener("pagehide", stop);
  if (!document.hidden) follow();
}
