package loosefk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// Writers delete parents and insert them again, each time with a new child, and claim the
// remaining old children, while the engine is running. At the end, the children that an
// existing parent has claimed since its last insertion must exist, and no children of
// other parents. Each transaction also records its claims in a table.
func TestClaimedChildrenOfExistingParentsAreKept(t *testing.T) {
	t.Parallel()
	type example struct {
		pace        string
		remote      bool
		connections int
	}
	pgtest.Each(t, pgtest.Few(t, map[string]example{
		"normal":           {pace: "normal"},
		"adaptive":         {pace: "adaptive"},
		"four connections": {pace: "adaptive", connections: 4},
		"remote, normal":   {pace: "normal", remote: true},
		"remote, adaptive": {pace: "adaptive", remote: true},
	}, "normal", "four connections", "remote, adaptive"), func(t *testing.T, _ string, test example) {
		b, ci := twoDatabases(t)
		b.withPace(test.pace).engine.Limits = loosefk.Limits{Runtime: b.engine.Limits.Runtime}
		if test.connections > 0 {
			b.connections(t, test.connections)
		}
		w := writers{bundle: b, children: b.DB, table: "children"}
		if test.remote {
			w.children, w.table = ci, "builds"
		}
		w.children.Exec(`
			CREATE SEQUENCE births START 1000000;
			ALTER TABLE ` + w.table + ` ADD claim int;
			CREATE TABLE claims (child bigint, parent bigint)`)
		var all sync.WaitGroup
		for n := range 4 {
			seed := rand.Uint64()
			all.Go(func() { w.write(t, n, seed) })
		}
		written := make(chan struct{})
		go func() { all.Wait(); close(written) }()
		runs := 0
		for done := false; !done; runs++ {
			select {
			case <-written:
				done = true
			default:
			}
			require.Empty(t, b.run(t).Errors)
		}
		b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() WHERE status = 1")
		b.run(t)
		t.Logf("%d runs", runs)
		require.Zero(t, b.Pending(t))
		living := b.ids("SELECT id FROM parents")
		require.Empty(t, w.children.Rows(`
			SELECT claims.child, claims.parent FROM claims
			WHERE claims.parent::text = ANY ($1) AND NOT EXISTS (SELECT FROM `+w.table+` AS child WHERE child.id = claims.child AND child.parent_id = claims.parent)`,
			living), "claimed children that were deleted")
		require.Empty(t, w.children.Rows("SELECT id, parent_id FROM "+w.table+" WHERE parent_id::text <> ALL ($1)",
			living), "children without a parent")
	})
}

type writers struct {
	bundle

	children *dbtest.DB
	table    string
}

// write runs 40 transactions. They end with COMMIT, ROLLBACK, a two-phase commit, or a
// conflict.
func (w writers) write(t *testing.T, number int, seed uint64) {
	t.Helper()
	t.Logf("writer %d has the seed %d", number, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	parents, err := w.Pool().Acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	defer parents.Release()
	children, err := w.children.Pool().Acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	defer children.Release()
	for n := range 40 {
		parent := 1 + random.IntN(5)
		begin := []string{"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"}[random.IntN(2)]
		end := []string{"COMMIT", "ROLLBACK", "COMMIT", "PREPARED"}[random.IntN(4)]
		// Writers of one parent run one after the other, so that their transactions have
		// an order.
		err := execute(t.Context(), parents.Conn(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", parent))
		if err == nil {
			// The names of prepared transactions are unique on the whole server.
			name := fmt.Sprintf("%s %d %d", w.children.Name, number, n)
			if random.IntN(3) == 0 {
				err = w.remove(t.Context(), parents.Conn(), children.Conn(), parent, begin, end, name)
			} else {
				err = w.claim(t.Context(), parents.Conn(), children.Conn(), parent, begin, end, name)
			}
			err = errors.Join(err, execute(t.Context(), parents.Conn(),
				fmt.Sprintf("SELECT pg_advisory_unlock(%d)", parent)))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// remove deletes a parent. With two databases it deletes the claims first, because the
// engine may delete their children from then on.
func (w writers) remove(ctx context.Context, parents, children *pgx.Conn, parent int, begin, end, name string) error {
	claims, row := fmt.Sprintf("DELETE FROM claims WHERE parent = %d", parent),
		fmt.Sprintf("DELETE FROM parents WHERE id = %d", parent)
	if w.children == w.DB {
		return transact(ctx, parents, begin, end, name, claims, row)
	}
	return errors.Join(transact(ctx, children, "BEGIN", "COMMIT", "", claims),
		transact(ctx, parents, begin, end, name, row))
}

// claim inserts the parent if it does not exist, inserts a child, and claims its other
// children. With two databases it inserts the parent first.
func (w writers) claim(ctx context.Context, parents, children *pgx.Conn, parent int, begin, end, name string) error {
	row := fmt.Sprintf("INSERT INTO parents VALUES (%d) ON CONFLICT DO NOTHING", parent)
	born := fmt.Sprintf("INSERT INTO %s (id, parent_id) VALUES (nextval('births'), %d)", w.table, parent)
	claimed := fmt.Sprintf("WITH claimed AS (UPDATE %s SET claim = 1 WHERE parent_id = %[2]d RETURNING id) INSERT INTO claims SELECT id, %[2]d FROM claimed",
		w.table, parent)
	if w.children == w.DB {
		return transact(ctx, parents, begin, end, name, row, born, claimed)
	}
	return errors.Join(transact(ctx, parents, "BEGIN", "COMMIT", "", row),
		transact(ctx, children, begin, end, name, born, claimed))
}

// transact runs statements in one transaction. A conflict rolls it back.
func transact(ctx context.Context, conn *pgx.Conn, begin, end, name string, statements ...string) error {
	err := execute(ctx, conn, append([]string{begin, "SET LOCAL sexton.notify = off"}, statements...)...)
	switch {
	case err != nil:
		err = errors.Join(err, execute(ctx, conn, "ROLLBACK"))
	case end == "PREPARED":
		err = execute(ctx, conn, "PREPARE TRANSACTION '"+name+"'", "COMMIT PREPARED '"+name+"'")
	default:
		err = execute(ctx, conn, end)
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01") {
		return nil
	}
	return err
}

func execute(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
