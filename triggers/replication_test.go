package triggers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

// In logical replication, only the publisher records deletions, because a subscription
// applies changes without firing statement triggers.
func TestLogicalReplication(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, map[string]string{"wal_level": "logical"})
	site := func() *bundle {
		d := pgtest.NewOn(t, server)
		d.Exec(parents)
		config := pgtest.Must(pgx.ParseConfig(d.URL))(t)
		pgtest.Must(migrate.Up(t.Context(), pgtest.Logger(t), migrate.Database{
			Name: "main", Conn: config, TrackedSchema: "public", Components: []string{migrate.LooseForeignKeys},
		}))(t)
		b := &bundle{Database: d, t: t, cfg: triggers.Config{TrackedSchema: "public"}}
		b.conn = b.connect(d.URL)
		b.install(id("parents"))
		return b
	}
	publisher, subscriber := site(), site()
	publisher.Exec("CREATE PUBLICATION p FOR TABLE parents")
	publisher.Exec("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	config := publisher.conn.Config()
	subscriber.Exec(fmt.Sprintf("CREATE SUBSCRIPTION s CONNECTION 'host=%s port=%d user=%s dbname=%s' PUBLICATION p WITH (create_slot = false, copy_data = false)",
		config.Host, config.Port, config.User, config.Database))
	rows := func(count int) {
		pgtest.WaitFor(t, fmt.Sprintf("%d rows on the subscriber", count), func(context.Context) (bool, error) {
			return pgtest.Scalar[int](t, subscriber.Database, "SELECT count(*)::int FROM parents") == count, nil
		})
	}
	publisher.Exec("DELETE FROM parents WHERE id <= 2")
	rows(3)
	require.Equal(t, []string{"public.parents 1", "public.parents 2"}, publisher.tombstones())
	require.Empty(t, subscriber.tombstones())

	publisher.Exec("SET sexton.truncate = 'ignore'; TRUNCATE parents; RESET sexton.truncate")
	rows(0)
	require.Len(t, publisher.tombstones(), 2)
	require.Empty(t, subscriber.tombstones())
	subscriber.Exec("DROP SUBSCRIPTION s")
}
