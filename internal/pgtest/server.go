package pgtest

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
)

// Server starts a private server that only this test uses, and that the test may restart
// or kill. The server stops when the test ends. A start takes about half a second, so
// tests that only need a database use New. more are additional server settings.
func Server(tb testing.TB, more ...map[string]string) *devpg.Server {
	server, err := startServer(tb.Context(), Logger(tb), more...)
	require.NoError(tb, err, "start a private postgres")
	tb.Cleanup(func() { require.NoError(tb, server.Stop()) })
	return server
}

func startServer(ctx context.Context, logger *slog.Logger, more ...map[string]string) (*devpg.Server, error) {
	all := settings()
	for _, each := range more {
		maps.Copy(all, each)
	}
	return devpg.Start(ctx, devpg.Options{BinDir: os.Getenv("SEXTON_PG_BIN"), Logger: logger, Settings: all})
}

func settings() map[string]string {
	return map[string]string{
		// Parallel tests have a pool each, and there are as many test processes as
		// processors.
		"max_connections": strconv.Itoa(max(600, 300*runtime.NumCPU())),
		// Some tests create several hundred tables in one transaction.
		"max_locks_per_transaction": "128",
		"max_prepared_transactions": "50",
		"shared_buffers":            "64MB",
		"full_page_writes":          "off",
		"checkpoint_timeout":        "1h",
		// The limit saves memory if the data folder is in a file system in memory.
		"max_wal_size": "256MB",
		// autovacuum is not off because doctor would warn about that.
		"autovacuum_naptime": "1d",
		"jit":                "off",
	}
}
