// Package page is the operator's page: what waits and why, what runs and how fast, what
// failed, and the buttons for it. Its entry point is New.
//
//	Source (package operator) ─► Overview ─► view ─► templates ─► HTML, and two fragments every two seconds
//	         ▲                                                               │
//	         └──────────────── SetPaused, Retry ◄─── buttons ◄───────────────┘
//
// It is rendered on the server and reads without JavaScript. With it, the fragments are
// exchanged and the backlog is drawn over time.
//
// Its one invariant: nothing is loaded from other hosts, and nothing stands inline; the
// content security policy allows neither. However many visitors look at it, the source is
// read once in two seconds.
package page
