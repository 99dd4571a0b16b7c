package placeholder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// leaseKey is the key of the lease that the job takes.
const leaseKey = "import/placeholder_user_cleanup_worker"

// bundle is the empty reference application with the groups 1 and 2, and an engine for
// it.
type bundle struct {
	*dbtest.DB

	engine *placeholder.Engine
	items  []placeholder.Item
}

func setup(t *testing.T) *bundle {
	b := &bundle{DB: dbtest.Reference(t)}
	b.Exec(`
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO groups (id, name, path) VALUES (1, 'one', 'one'), (2, 'two', 'two');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 2, 'project', 'project');
		INSERT INTO sexton.job_kinds (kind, queue, args, defaults, cron, max_attempts)
		VALUES ('import_delete_placeholder_user', 'import_delete_placeholder_user', '{"user_id": "bigint"}', '{}', false, 25);`)
	b.engine = b.newEngine(t)
	return b
}

func rules() placeholder.Rules {
	return placeholder.Rules{MaxAttempts: 15, RetryPeriod: 48 * time.Hour}
}

// start returns a fixed time in the future. The first job is scheduled for this time.
func start() time.Time { return time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) }

// newEngine returns an engine with a new lease.
func (b *bundle) newEngine(t *testing.T) *placeholder.Engine {
	session, _ := b.Session(t, leaseKey)
	return &placeholder.Engine{
		Session: session,
		Rules:   rules(), Start: start(), Spacing: time.Second, Runtime: time.Minute,
		Offered: func(_ context.Context, item placeholder.Item) { b.items = append(b.items, item) },
	}
}

func (b *bundle) run(t *testing.T) *placeholder.Stats {
	return pgtest.Must(b.engine.Run(t.Context()))(t)
}

// placeholders creates users of type 15 with these ids, each with a detail row of the
// same id without an owner.
func (b *bundle) placeholders(ids ...int64) {
	b.Exec(`INSERT INTO users (id, username, email, name, user_type)
		SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, 15 FROM unnest($1::bigint[]) AS id`, ids)
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) SELECT id, id, 1 FROM unnest($1::bigint[]) AS id", ids)
}

// jobs returns the unfinished jobs: the user and the seconds after the start.
func (b *bundle) jobs() [][]string {
	return b.Rows(`SELECT args ->> 'user_id', extract(epoch FROM scheduled_at - $1)::int FROM sexton.river_job
		WHERE kind = 'import_delete_placeholder_user' AND finalized_at IS NULL ORDER BY scheduled_at, id`, start())
}

// attempts returns the detail rows that were tried: the id, the attempts, and whether the
// last attempt was within the last minute.
func (b *bundle) attempts() [][]string {
	return b.Rows(`SELECT id, deletion_attempts, last_deletion_attempt_at > now() - interval '1 minute'
		FROM import_placeholder_user_details WHERE deletion_attempts > 0 ORDER BY id`)
}

// defaults returns the references of the default configuration.
func defaults(t *testing.T) []placeholder.Reference {
	c := pgtest.Must(config.Load(config.Options{
		DatabaseURL: "postgres://nobody@nowhere.invalid/none",
		Dir:         t.TempDir(),
	}))(t)
	var references []placeholder.Reference
	for _, entry := range c.PlaceholderUsers.References {
		references = append(references, placeholder.Reference(entry))
	}
	return references
}

func (b *bundle) remover(t *testing.T) *placeholder.Remover {
	bound, problems := pgtest.Must2(placeholder.Bind(t.Context(), b.Pool(), dbtest.Names(), defaults(t)))(t)
	require.Empty(t, problems, "each default column has an index")
	return &placeholder.Remover{
		DB: b.Pool(), Watched: b.Pool(), Names: dbtest.Names(), References: bound,
		Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
	}
}

func (b *bundle) remove(t *testing.T, id int64) placeholder.Verdict {
	return pgtest.Must(b.remover(t).Remove(t.Context(), id))(t)
}
