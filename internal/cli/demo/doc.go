// Package demo is the command that shows Sexton at work on a private Postgres. Its entry point is Command.
//
//	devpg ─► sample data ─► installation.Install ─► worker in the same process ─► package demo's view and summary
package demo
