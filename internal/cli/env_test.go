package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/database"
)

// If the connection is lost while a command is running, the exit code is 4, as for an
// unreachable database.
func TestExitCodeOfALostConnection(t *testing.T) {
	t.Parallel()
	for want, errs := range map[int][]error{
		4: {
			&database.UnreachableError{Err: io.EOF}, io.ErrUnexpectedEOF, &pgconn.PgError{Code: "57P01"},
			pgconn.ErrConnClosed,
		},
		6: {cli.ErrRowsLeft},
		1: {errors.New("no"), &pgconn.PgError{Code: "23514"}},
	} {
		for _, err := range errs {
			env := cli.Env{Stderr: &bytes.Buffer{}}
			require.Equal(t, want, env.Exit(&cobra.Command{}, fmt.Errorf("restore: %w", err)), "%v", err)
		}
	}
}
