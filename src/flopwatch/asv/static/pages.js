"use strict";

// asv makes buttons of links without an address and sorts by clicks on headings; neither can be reached by keyboard.
(function () {
    const PRESSED = "a[role=button]:not([href]), a.btn:not([href]), th[data-sort], .dropdown-menu a:not([href])";

    function reach(root) {
        for (const element of root.querySelectorAll(PRESSED)) {
            if (!element.hasAttribute("tabindex")) {
                element.tabIndex = 0;
            }
        }
    }

    document.addEventListener("keydown", function (event) {
        if ((event.key === "Enter" || event.key === " ") && event.target.matches(PRESSED)) {
            event.preventDefault();
            event.target.click();
        }
    });
    document.addEventListener("DOMContentLoaded", function () {
        new MutationObserver(function () { reach(document); }).observe(document.body, {childList: true, subtree: true});
        reach(document);
    });
})();
