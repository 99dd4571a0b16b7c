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

// Server starts a private server for one test alone, which may restart or kill it, and
// stops it when the test ends. It costs about half a second: tests that need only a
// database take New. more are further settings of the server.
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
		// Parallel tests with a pool each, in as many processes as there are processors.
		"max_connections": strconv.Itoa(max(600, 300*runtime.NumCPU())),
		// Schemas of several hundred tables are created in one transaction.
		"max_locks_per_transaction": "128",
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
