// Package bench holds the commands that measure Sexton; they prepare databases for internal/bench. Its entry point is Command.
//
//	sexton bench … ─► databases on a private or a given Postgres ─► package bench ─► Report: text or JSON
package bench
