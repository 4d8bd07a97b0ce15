"use strict";

// Filters the page of changes, and keeps the filters in the address, so that what is seen can be sent as a link.
(function () {
    const form = document.getElementById("filters");
    const rows = Array.from(document.querySelectorAll("tr[data-is]")).map(function (row) {
        return {
            row: row,
            section: row.closest("section"),
            is: new Map(row.dataset.is.split("\n").map(function (line) {
                const at = line.indexOf("=");
                return [line.slice(0, at), line.slice(at + 1)];
            })),
            text: (row.textContent + " " + row.closest("section").querySelector("h2").textContent).toLowerCase(),
        };
    });

    function apply() {
        const wanted = Array.from(form.querySelectorAll("select")).filter(function (select) { return select.value; });
        const text = form.elements.text.value.trim().toLowerCase();
        const seen = new Map();
        let matches = 0;
        for (const entry of rows) {
            const shown = entry.text.includes(text) && wanted.every(function (select) {
                return entry.is.get(select.name) === select.value;
            });
            entry.row.hidden = !shown;
            seen.set(entry.section, shown || seen.get(entry.section) || false);
            matches += shown;
        }
        seen.forEach(function (shown, section) { section.hidden = !shown; });
        document.getElementById("matches").textContent = matches + " of " + rows.length + " shown";
    }

    function remember() {
        const chosen = new URLSearchParams();
        for (const field of form.querySelectorAll("select, input")) {
            if (field.value) {
                chosen.set(field.name, field.value);
            }
        }
        const query = chosen.toString();
        history.replaceState(null, "", query ? "?" + query : location.pathname);
    }

    new URLSearchParams(location.search).forEach(function (value, name) {
        const field = form.elements.namedItem(name);
        if (field) {
            field.value = value;
        }
    });
    form.addEventListener("input", function () { apply(); remember(); });
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    form.hidden = false;
    apply();
})();
