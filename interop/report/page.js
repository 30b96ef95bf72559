// Searching is all that needs a script; without one the field stays hidden.
const search = document.getElementById("search");
search.hidden = false;
search.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  for (const body of document.querySelectorAll("tbody[data-name]"))
    body.classList.toggle("away", !body.dataset.name.includes(wanted));
});
search.form.addEventListener("submit", (event) => event.preventDefault());
