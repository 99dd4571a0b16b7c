package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

const hearing = 2 * time.Second

// place tells databases apart, those of other servers included.
type place struct {
	database string
	started  time.Time
}

func placeOf(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (place, error) {
	var p place
	err := on.QueryRow(ctx, "SELECT pg_catalog.current_database()::pg_catalog.text, pg_catalog.pg_postmaster_start_time()").Scan(&p.database, &p.started)
	if err != nil {
		return place{}, fmt.Errorf("look where a connection leads: %w", err)
	}
	return p, nil
}

// listen proves that what one connection notifies arrives at another. Through a transaction pooler LISTEN
// succeeds, and nothing ever comes.
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
	here, err := placeOf(ctx, t.Database.Pool)
	if err != nil {
		return nil, err
	}
	there, err := placeOf(ctx, conn)
	if err != nil {
		return nil, err
	}
	if here.database != there.database || !here.started.Equal(there.started) {
		return one(problem.Error, "listen_url", fmt.Sprintf("listen_url leads to another place (database %s on a server started at %s) "+
			"than url (database %s on a server started at %s)", there.database, there.started.UTC().Format(time.RFC3339),
			here.database, here.started.UTC().Format(time.RFC3339)), "give listen_url a direct connection to the database that url leads to"), nil
	}
	channel := "sexton_doctor_" + rand.Text()
	if _, err := conn.Exec(ctx, "LISTEN "+quote(channel)); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if _, err := t.Database.Pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, '')", channel); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	limit := cmp.Or(t.Hearing, hearing)
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil || waiting.Err() == nil:
		return nil, fmt.Errorf("wait for notification: %w", err)
	}
	return one(problem.Warning, "listen_url", fmt.Sprintf("a notification did not arrive within %s, as through a transaction pooler: "+
		"workers poll every second instead of being woken", limit), "give listen_url a direct connection, past any pooler"), nil
}
