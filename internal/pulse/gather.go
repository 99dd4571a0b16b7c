package pulse

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockTimeout bounds the wait for a table that another session has locked.
const (
	lockTimeout = "500ms"
	lockSQL     = "SELECT pg_catalog.set_config('lock_timeout', $1, true)"
)

// Sender sends statements together.
type Sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Then follows from an answer, once the transaction with the question has ended well.
type Then func(ctx context.Context) error

// gather sends the statements of all questions in one round trip, which is one implicit transaction. A question that has none now, or fails
// before, changes nothing for the others.
func gather(ctx context.Context, on Sender, questions []Question) (all []Then, err error) {
	pipeline := &pgx.Batch{}
	pipeline.Queue(lockSQL, lockTimeout)
	var seats []*seat
	for _, q := range questions {
		s := &seat{asked: make(chan struct{}), answers: make(chan pgx.BatchResults), ended: make(chan struct{})}
		go func() {
			defer close(s.ended)
			s.then, s.err = q.Ask(ctx, s)
		}()
		select {
		case <-s.asked:
			pipeline.Queue(s.sql, s.args...)
			seats = append(seats, s)
		case <-s.ended:
		}
	}
	if len(seats) == 0 {
		return nil, nil
	}
	results := on.SendBatch(ctx, pipeline)
	_, err = results.Exec()
	for _, s := range seats { // One after the other, in the order of the statements.
		s.answers <- results
		<-s.ended
		if err = errors.Join(err, s.err); s.then != nil {
			all = append(all, s.then)
		}
	}
	return all, errors.Join(err, results.Close())
}

// seat is the connection of one question, for one statement.
type seat struct {
	sql     string
	args    []any
	asked   chan struct{}
	answers chan pgx.BatchResults
	// then and err are there once it has ended.
	then  Then
	err   error
	ended chan struct{}
}

// send panics at a second statement, which is a mistake in the program.
func (s *seat) send(sql string, args []any) pgx.BatchResults {
	s.sql, s.args = sql, args
	close(s.asked)
	return <-s.answers
}

// Exec implements dbsqlc.DBTX.
func (s *seat) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return s.send(sql, args).Exec() //nolint:wrapcheck // the asker words it
}

// Query implements dbsqlc.DBTX.
func (s *seat) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	return s.send(sql, args).Query() //nolint:wrapcheck // the asker words it
}

// QueryRow implements dbsqlc.DBTX.
func (s *seat) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	return s.send(sql, args).QueryRow()
}
