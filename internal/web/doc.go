// Package web is a worker's HTTP server. Its entry point is Server.Run.
//
//	request ─► limit of connections ─► headers, local names, credentials ─┬─► /            the page (package page)
//	                                                                      ├─► RiverPath    River UI
//	                                                                      ├─► /metrics
//	                                                                      └─► /readyz, /healthz
//
// The invariant: work does not depend on the server. If its port is taken, it logs a
// warning and retries until the port is free.
//
// /healthz, and the yes or no of /readyz, need no credentials, because the programs that
// query them seldom have any. Each change that a visitor requests of River is recorded
// before it is made.
package web
