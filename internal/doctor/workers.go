package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Workers is the jobs database, which holds the heartbeats of the workers.
type Workers struct {
	Target
	// Silence is the time without a heartbeat after which a worker counts as dead.
	Silence time.Duration
}

// ExamineWorkers checks the running workers. It skips the check if Sexton is not
// installed.
func ExamineWorkers(ctx context.Context, report *Report, w Workers) {
	name := w.Database.Name
	report.RunIf(ctx, w.Installed, "workers", name, func(ctx context.Context) ([]Finding, error) {
		return w.read(ctx, func(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
			alive, err := w.Database.Names.Queries(tx).ClientsAlive(ctx, w.Silence.Seconds())
			if err != nil {
				return nil, fmt.Errorf("read workers: %w", err)
			}
			slices.SortStableFunc(alive,
				func(a, b dbsqlc.ClientsAliveRow) int { return a.StartedAt.Compare(b.StartedAt) })
			return judgeWorkers(alive), nil
		})
	})
}

func judgeWorkers(alive []dbsqlc.ClientsAliveRow) []Finding {
	if len(alive) == 0 {
		return One(problem.Info, "workers", "no worker is running", "sexton run")
	}
	var found []Finding
	for _, w := range alive {
		if w.ReloadError != "" {
			found = append(found, One(problem.Warning, w.ClientID+" on "+w.Host,
				"the worker refused its changed configuration and continues with the old one: "+w.ReloadError,
				"correct the files and send SIGHUP")...)
		}
		if len(w.Deaf) > 0 {
			found = append(found, One(problem.Warning, w.ClientID,
				"notifications do not reach this worker. It polls every second for "+
					strings.Join(w.Deaf, ", "), "set listen_url to a direct connection without a pooler")...)
		}
	}
	return found
}

const notifyTimeout = 2 * time.Second

// server identifies a database on a server, so that two connections can be compared.
type server struct {
	database string
	started  time.Time
}

func serverOf(ctx context.Context, on dbsqlc.DBTX) (server, error) {
	var p server
	err := on.QueryRow(ctx,
		"SELECT pg_catalog.current_database()::pg_catalog.text, pg_catalog.pg_postmaster_start_time()").Scan(&p.database, &p.started)
	return p, problem.Doing(err, "identify the server")
}

// listen checks that a notification from a pool connection arrives at a direct
// connection. Through a transaction pooler, LISTEN succeeds, but no notification arrives.
func (t Target) listen(ctx context.Context) ([]Finding, error) {
	conn, err := pgx.ConnectConfig(ctx, t.Database.Direct)
	if err != nil {
		return nil, fmt.Errorf("connect directly: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	pooled, err := serverOf(ctx, t.Database.Pool)
	if err != nil {
		return nil, err
	}
	direct, err := serverOf(ctx, conn)
	if err != nil {
		return nil, err
	}
	if pooled.database != direct.database || !pooled.started.Equal(direct.started) {
		return One(problem.Error, "listen_url",
			fmt.Sprintf("listen_url connects to database %s on a server started at %s, "+
				"but url to database %s on a server started at %s", direct.database,
				direct.started.UTC().Format(time.RFC3339),
				pooled.database, pooled.started.UTC().Format(time.RFC3339)),
			"set listen_url to a direct connection to the database of url"), nil
	}
	channel := "sexton_doctor_" + rand.Text()
	if _, err := conn.Exec(ctx, "LISTEN "+quote(channel)); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := t.Database.Pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, '')", channel); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	limit := cmp.Or(t.NotifyTimeout, notifyTimeout)
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil || waiting.Err() == nil:
		return nil, fmt.Errorf("wait for notification: %w", err)
	}
	return One(problem.Warning, "listen_url",
		fmt.Sprintf("a notification did not arrive within %s, probably because of a transaction pooler: "+
			"workers poll every second instead", limit),
		"set listen_url to a direct connection without a pooler"), nil
}
