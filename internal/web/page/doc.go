// Package page serves the operator's page: pending work and its obstacles, running jobs
// and their speed, failures, and buttons for changes. Its entry point is New.
//
//	Source (package operator) ─► Overview ─► view ─► templates ─► HTML, and two fragments every two seconds
//	         ▲                                                               │
//	         └──────────────── SetPaused, Retry ◄─── buttons ◄───────────────┘
//
// The server renders the page, so it works without JavaScript. With JavaScript, htmx
// replaces the fragments and uPlot draws the backlog over time.
//
// The invariant: the page loads nothing from other hosts and has no inline scripts or
// styles. The Content-Security-Policy forbids both. The source is read at most once in
// two seconds, however many browsers show the page.
package page
