// Package web is a worker's HTTP server. Its entry point is Server.Run.
//
//	request ─► limit of connections ─► headers, local names, credentials ─┬─► /            the page (package page)
//	                                                                      ├─► RiverPath    River's pages
//	                                                                      ├─► /metrics
//	                                                                      └─► /readyz, /healthz
//
// Its one invariant: work does not depend on it. A port that is taken is a warning, and
// is tried again until it is free.
//
// Health, and readiness as yes or no, are answered without credentials, because programs
// that restart processes seldom have any. A change that is asked of River is recorded
// with its Visitor before it is made.
package web
