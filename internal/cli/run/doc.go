// Package run is the command that runs the worker. Its entry point is Command.
//
//	installation.Files    ─► River's client, subscriptions, heartbeat, HTTP server ─► signal: passes end after the batch in hand
//	        ▲                                                                      │
//	        └──────────────────────── SIGHUP: reload ◄─────────────────────────────┘
package run
