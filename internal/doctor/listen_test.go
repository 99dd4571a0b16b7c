package doctor_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// forgetful ends each LISTEN right after it has succeeded, as a transaction pooler does by handing the next
// transaction another session.
type forgetful struct{}

func (forgetful) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (forgetful) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.String() == "LISTEN" {
		_ = conn.PgConn().Exec(ctx, "UNLISTEN *").Close()
	}
}

func TestNotificationsThatDoNotArrive(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	direct := p.target.Database.Direct.Copy()
	direct.Tracer = forgetful{}
	p.target.Database.Direct, p.target.Hearing = direct, 50*time.Millisecond
	f := p.one("listen")
	require.Equal(t, problem.Warning, f.Severity)
	require.Contains(t, f.Message, "a notification did not arrive within 50ms, as through a transaction pooler")
	require.Equal(t, "give listen_url a direct connection, past any pooler", f.Fix)
}

func TestListenURLOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	other := pgtest.New(t)
	p.target.Database.Direct = pgtest.Must(pgx.ParseConfig(other.URL))(t)
	f := p.one("listen")
	require.Equal(t, problem.Error, f.Severity)
	require.Contains(t, f.Message, "listen_url leads to another place (database "+other.Name+" ")
}

func TestListenURLThatIsMissing(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.target.Undirected = true
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, p.target)
	require.Contains(t, report.Checks, doctor.Check{Check: "listen", Database: "main", Result: doctor.Skipped})
	require.Contains(t, report.Checks, doctor.Check{Check: "notify_queue", Database: "main", Result: doctor.OK})
}
