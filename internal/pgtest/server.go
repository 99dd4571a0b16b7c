package pgtest

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
)

// Server starts a private server for one test alone, which may restart or kill it, and stops it when the test ends. It costs about
// half a second: tests that need only a database take New.
func Server(tb testing.TB) *devpg.Server {
	tb.Helper()
	server, err := startServer(tb.Context(), Logger(tb))
	require.NoError(tb, err, "start a private postgres")
	tb.Cleanup(func() { require.NoError(tb, server.Stop()) })
	return server
}

func startServer(ctx context.Context, logger *slog.Logger) (*devpg.Server, error) {
	return devpg.Start(ctx, devpg.Options{
		BinDir: os.Getenv("SEXTON_PG_BIN"),
		Logger: logger, Settings: settings(),
	})
}

func settings() map[string]string {
	return map[string]string{
		// Parallel tests with a pool each, in as many processes as there are processors.
		"max_connections": strconv.Itoa(max(300, 100*runtime.NumCPU())),
		// Schemas of several hundred tables are created in one transaction.
		"max_locks_per_transaction": "256",
		"max_prepared_transactions": "50",
		"shared_buffers":            "64MB",
		"full_page_writes":          "off",
		"checkpoint_timeout":        "1h",
		// The write-ahead log may be in memory.
		"max_wal_size": "256MB",
		// Not off: the doctor would warn of that.
		"autovacuum_naptime": "1d",
		"jit":                "off",
	}
}
