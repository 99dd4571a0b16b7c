package demo

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	random "math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// stage plays the scenes in the database of a Site.
type stage struct{ Site }

//go:embed queries
var queries embed.FS

// query returns the content of a file in the folder queries.
func query(name string) string { return pgcatalog.Texts{Files: queries}.Statement(name) }

// scan reads the only row of a query.
func (s *stage) scan(ctx context.Context, sql string, args []any, into ...any) error {
	return s.Pool.QueryRow(ctx, sql, args...).Scan(into...)
}

// ids returns the IDs that a query returns.
func (s *stage) ids(ctx context.Context, sql string, args ...any) ([]int64, error) {
	rows, _ := s.Pool.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// missing returns the number of ids that do not exist in a table.
func (s *stage) missing(ctx context.Context, table string, ids []int64) (n int64, err error) {
	err = s.scan(ctx, "SELECT count(*) FROM unnest($1::bigint[]) AS was (id) WHERE NOT EXISTS (SELECT FROM public."+
		table+" AS found WHERE found.id = was.id)",
		[]any{ids}, &n)
	return n, problem.Doing(err, "count missing %s", table)
}

// scenes returns all scenes in the order in which their actions are planned. undo is
// last, because the other scenes must not delete the rows that its plan inserts.
func (s *stage) scenes() []*scene {
	return []*scene{s.looseForeignKeys(), s.ghostUsers(), s.placeholderUsers(), s.groups(), s.diffs(), s.undo()}
}

// parentTable is a parent table from which the application deletes rows. left is the
// number of rows that the application will still delete, and newest is the largest ID at
// the start.
type parentTable struct {
	name string
	// share is the percentage of the rows that are deleted.
	share        int64
	left, newest int64
}

// looseForeignKeys returns the scene in which random parents are deleted.
func (s *stage) looseForeignKeys() *scene {
	tables := []*parentTable{
		{name: "ci_pipelines", share: 60},
		{name: "issues", share: 60},
		{name: "merge_requests", share: 60},
		{name: "web_hooks", share: 60},
		{name: "packages_packages", share: 60},
		// Fewer projects are deleted, because a project has many children, by native and
		// by loose foreign keys.
		{name: "projects", share: 10},
	}
	return &scene{
		kind: "loose_foreign_keys_cleanup", title: "loose foreign keys",
		acted: "parents deleted", finished: "rows changed",
		waiting: "SELECT count(*) FROM public.loose_foreign_keys_deleted_records",
		done:    "(run.stats ->> 'delete_count')::bigint + (run.stats ->> 'update_count')::bigint",
		plan: func(ctx context.Context) (planned int64, err error) {
			for _, t := range tables {
				var rows int64
				if err := s.scan(ctx, "SELECT count(*), coalesce(max(id), 0) FROM public."+t.name, nil, &rows,
					&t.newest); err != nil {
					return 0, err
				}
				t.left = (rows*t.share + 99) / 100
				planned += t.left
			}
			return planned, nil
		},
		act: func(ctx context.Context, n int64) (int64, bool, error) {
			i := random.IntN(len(tables))
			t := tables[i]
			sql := fmt.Sprintf("DELETE FROM public.%[1]s WHERE id IN (SELECT id FROM public.%[1]s WHERE id <= $1 ORDER BY random() LIMIT $2)", t.name)
			tag, err := s.Pool.Exec(ctx, sql, t.newest, min(n, t.left))
			done := tag.RowsAffected()
			t.left -= done
			if err == nil && (done == 0 || t.left == 0) {
				tables = append(tables[:i], tables[i+1:]...)
			}
			return done, len(tables) > 0, err
		},
		count: func(ctx context.Context) ([]Count, error) {
			left, err := s.orphans(ctx)
			return []Count{{"orphans left", left, true}}, err
		},
	}
}

// orphans returns the number of children that should have been deleted or changed. It
// compares complete tables.
func (s *stage) orphans(ctx context.Context) (total int64, err error) {
	for _, d := range s.Definitions {
		var n int64
		sql, args := orphansOf(d)
		if err := s.scan(ctx, sql, args, &n); err != nil {
			return 0, fmt.Errorf("count orphans of %s in %s: %w", d.Parent, d.Child, err)
		}
		total += n
	}
	return total, nil
}

func orphansOf(d definitions.Definition) (sql string, args []any) {
	quoted := func(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
	parentColumns := d.ParentColumns
	if len(parentColumns) == 0 {
		parentColumns = []string{"id"}
	}
	var same, where []string
	for i, name := range parentColumns {
		same = append(same, "parent."+quoted(name)+" = child."+quoted(d.Columns[i]))
		where = append(where, "child."+quoted(d.Columns[i])+" IS NOT NULL")
	}
	for _, c := range d.Conditions {
		args = append(args, c.Value)
		where = append(where, fmt.Sprintf("child.%s::text = $%d", quoted(c.Column), len(args)))
	}
	if d.OnDelete == definitions.UpdateColumn {
		args = append(args, d.TargetValue)
		where = append(where, fmt.Sprintf("child.%s::text IS DISTINCT FROM $%d", quoted(d.TargetColumn), len(args)))
	}
	return fmt.Sprintf("SELECT count(*) FROM %s AS child WHERE %s AND NOT EXISTS (SELECT FROM %s AS parent WHERE %s)",
		quoted("public", d.Child.Table), strings.Join(where, " AND "), quoted("public", d.Parent.Table),
		strings.Join(same, " AND ")), args
}

// administrator is an SQL expression for the ID of the user who requests deletions.
const administrator = "(SELECT min(admin.id) FROM public.users AS admin WHERE admin.admin AND admin.user_type = 0)"

// ghostUsers returns the scene in which random users are deleted. Every fifth user is
// deleted with hard_delete.
func (s *stage) ghostUsers() *scene {
	var deleted []int64
	refused := []int64{}
	const candidates = `FROM public.users AS leaving WHERE leaving.user_type IN (0, 6, 13) AND leaving.id <> ` + administrator + `
		AND NOT EXISTS (SELECT FROM public.users_ghost_user_migrations AS job WHERE job.user_id = leaving.id)`
	return &scene{
		kind: "users_migrate_records_to_ghost_user_in_batches", title: "ghost users",
		acted: "users deleted", finished: "users removed",
		waiting: "SELECT count(*) FROM public.users_ghost_user_migrations",
		done:    "(run.stats ->> 'users_processed')::bigint",
		plan: func(ctx context.Context) (planned int64, err error) {
			err = s.scan(ctx, "SELECT (count(*) * 30 + 99) / 100 "+candidates, nil, &planned)
			return planned, err
		},
		act: func(ctx context.Context, n int64) (done int64, more bool, err error) {
			users, err := s.ids(ctx, "SELECT leaving.id "+candidates+
				" AND leaving.id <> ALL ($1) ORDER BY random() LIMIT $2", refused, n)
			for _, user := range users {
				var queued bool
				err := s.scan(ctx, "SELECT sexton.delete_user($1, "+administrator+", $2)",
					[]any{user, (len(deleted)+1)%5 == 0}, &queued)
				switch {
				// delete_user refuses the only owner of a group. The scene does not try
				// that user again.
				case pgcatalog.SQLState(err) == "SX012" || err == nil && !queued:
					refused = append(refused, user)
				case err != nil:
					return done, false, fmt.Errorf("delete user %d: %w", user, err)
				default:
					deleted, done = append(deleted, user), done+1
				}
			}
			return done, len(users) > 0, err
		},
		count: func(ctx context.Context) ([]Count, error) {
			missingUsers, err := s.missing(ctx, "users", deleted)
			var kept int64
			if err == nil {
				err = s.scan(ctx, `SELECT count(*) FROM public.issues AS issue
					JOIN public.users AS ghost ON ghost.id = issue.author_id AND ghost.user_type = 5`, nil, &kept)
			}
			return []Count{
				{"deleted users left", int64(len(deleted)) - missingUsers, true},
				{"issues with the ghost user", kept, false},
			}, err
		},
	}
}

// placeholderUsers returns the scene in which placeholder users lose their group, as if
// the group had been deleted.
func (s *stage) placeholderUsers() *scene {
	var released []int64
	const undecided = `SELECT count(*) FROM public.import_placeholder_user_details AS detail
		WHERE detail.namespace_id IS NULL AND detail.deletion_attempts < 15 AND detail.last_error IS NULL
		AND NOT EXISTS (SELECT FROM public.users_ghost_user_migrations AS job WHERE job.user_id = detail.placeholder_user_id)`
	return &scene{
		kind: "import_placeholder_user_cleanup", title: "placeholder users",
		acted: "left without an owner", finished: "queued for deletion",
		waiting: undecided,
		done:    "(run.stats ->> 'scheduled')::bigint",
		plan: func(ctx context.Context) (planned int64, err error) {
			err = s.scan(ctx,
				"SELECT count(*) FROM public.import_placeholder_user_details WHERE namespace_id IS NOT NULL", nil,
				&planned)
			return planned, err
		},
		act: func(ctx context.Context, n int64) (int64, bool, error) {
			ids, err := s.ids(ctx, `UPDATE public.import_placeholder_user_details AS detail SET namespace_id = NULL WHERE detail.id IN (
				SELECT owned.id FROM public.import_placeholder_user_details AS owned WHERE owned.namespace_id IS NOT NULL ORDER BY owned.id LIMIT $1 FOR UPDATE)
				RETURNING detail.placeholder_user_id`, n)
			released = append(released, ids...)
			return int64(len(ids)), len(ids) > 0, err
		},
		count: func(ctx context.Context) ([]Count, error) {
			missingUsers, err := s.missing(ctx, "users", released)
			var kept, open int64
			err2 := s.scan(ctx, "SELECT count(*), ("+undecided+
				") FROM public.import_placeholder_user_details WHERE last_error IS NOT NULL", nil, &kept, &open)
			return []Count{
				{"queued users deleted", missingUsers, false},
				{"placeholders kept with a reason", kept, false},
				{"placeholders neither deleted nor kept", open, true},
			}, errors.Join(err, err2)
		},
	}
}

// groups returns the scene in which groups are scheduled for deletion. Every third group
// is restored before the end of its period. The other groups are made due.
func (s *stage) groups() *scene {
	var groups, destroyed, projects, restored []int64
	return &scene{
		kind: "group_destroy", title: "groups",
		acted: "groups scheduled", finished: "groups destroyed",
		waiting: `SELECT count(*) FROM public.group_deletion_schedules AS schedule JOIN public.groups AS due ON due.id = schedule.group_id
			WHERE due.marked_for_deletion_on < sexton.group_deletion_cutoff()`,
		done: "(run.stats ->> 'groups')::bigint",
		plan: func(ctx context.Context) (planned int64, err error) {
			groups, err = s.ids(ctx, query("leaf_groups"))
			// The group with the most rows is the second one, which is restored. In a
			// small data set, the other scenes need its rows.
			if len(groups) > 1 {
				random.Shuffle(len(groups)-1, func(i, j int) { groups[i+1], groups[j+1] = groups[j+1], groups[i+1] })
				groups[0], groups[1] = groups[1], groups[0]
			}
			groups = groups[:min(len(groups), max(2, len(groups)*30/100))]
			return int64(len(groups)), err
		},
		act: func(ctx context.Context, n int64) (done int64, more bool, err error) {
			for ; done < n && len(groups) > 0; done++ {
				id, restore := groups[0], (len(destroyed)+len(restored))%3 == 1
				var below []int64
				if err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
					return schedule(ctx, tx, id, restore,
						&below)
				}); err != nil {
					return done, true, fmt.Errorf("schedule the deletion of group %d: %w", id, err)
				}
				if groups = groups[1:]; restore {
					restored = append(restored, id)
				} else {
					destroyed, projects = append(destroyed, id), append(projects, below...)
				}
			}
			return done, len(groups) > 0, nil
		},
		count: func(ctx context.Context) ([]Count, error) {
			missingGroups, err := s.missing(ctx, "groups", destroyed)
			missingProjects, err2 := s.missing(ctx, "projects", projects)
			lost, err3 := s.missing(ctx, "groups", restored)
			return []Count{
				{"groups destroyed", missingGroups, false},
				{"projects in these groups destroyed", missingProjects, false},
				{"groups or projects left", int64(len(destroyed)+len(projects)) - missingGroups - missingProjects, true},
				{"restored groups missing", lost, true},
			}, errors.Join(err, err2, err3)
		},
	}
}

// schedule schedules the deletion of a group and reads the IDs of its projects. It then
// makes the group due, or restores it.
func schedule(ctx context.Context, tx pgx.Tx, id int64, restore bool, projects *[]int64) error {
	const scheduled = "SELECT ARRAY(SELECT id FROM public.projects WHERE group_id = $1) FROM sexton.schedule_group_deletion($1, " + administrator + ")"
	if err := tx.QueryRow(ctx, scheduled, id).Scan(projects); err != nil {
		return err
	}
	sql := query("make_group_due")
	if restore {
		sql = "SELECT sexton.cancel_group_deletion($1, " + administrator + ")"
	}
	_, err := tx.Exec(ctx, sql, id)
	return err
}

// diffs returns the scene in which diffs are added to merge requests.
func (s *stage) diffs() *scene {
	return &scene{
		kind: "migrate_external_diff", title: "external diffs",
		acted: "diffs added", finished: "files moved",
		// The query counts diffs that can be moved, and objects that must be removed.
		waiting: `SELECT count(*) FILTER (WHERE NOT EXISTS (
				SELECT FROM sexton.external_diffs AS known WHERE known.diff_id = diff.id AND known.skip_reason IS NOT NULL
			)) + (SELECT count(*) FROM sexton.external_diff_removals)
			FROM public.merge_request_diffs AS diff WHERE diff.files_count > 0 AND diff.stored_externally IS NOT TRUE`,
		done: "(run.stats ->> 'files')::bigint",
		plan: func(ctx context.Context) (planned int64, err error) {
			err = s.scan(ctx, "SELECT (count(*) * 5 + 99) / 100 FROM public.merge_requests", nil, &planned)
			return planned, err
		},
		act: func(ctx context.Context, n int64) (done int64, more bool, err error) {
			err = s.scan(ctx, query("add_diffs"), []any{n}, &done, &more)
			return done, more, err
		},
		count: func(ctx context.Context) ([]Count, error) {
			moved, lost, err := s.objects(ctx)
			return []Count{{"diffs in the bucket", moved, false}, {"moved diffs without their object", lost, true}}, err
		},
	}
}

// objects returns the number of moved diffs, and the number of moved diffs whose object
// is missing or too small.
func (s *stage) objects(ctx context.Context) (moved, lost int64, err error) {
	rows, _ := s.Pool.Query(ctx, query("moved_diffs"))
	var request, size int64
	var name string
	_, err = pgx.ForEachRow(rows, []any{&request, &name, &size}, func() error {
		moved++
		object, err := os.Stat(filepath.Join(s.Objects, "merge_request_diffs", fmt.Sprintf("mr-%d", request), name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && object.Size() < size {
			lost++
			return nil
		}
		return err
	})
	return moved, lost, err
}

// undo returns the scene in which a project with 5,000 rows below it is deleted by
// mistake and then restored.
func (s *stage) undo() *scene {
	group := "precious-" + strings.ToLower(rand.Text())
	var project, rows, deletion, restored int64
	var digest string
	return &scene{
		kind: "undo", title: "undo", acted: "wrong deletions and restores",
		waiting: `SELECT count(*) FROM public.groups AS own WHERE own.path = '` + group + `'
			AND NOT EXISTS (SELECT FROM public.projects AS project WHERE project.group_id = own.id)`,
		done: "0",
		plan: func(ctx context.Context) (int64, error) {
			if err := s.scan(ctx, query("plant_project"), []any{group}, &project); err != nil {
				return 0, err
			}
			return 2, s.scan(ctx, query("project_rows"), []any{project}, &rows, &digest)
		},
		act: func(ctx context.Context, _ int64) (int64, bool, error) {
			if deletion == 0 {
				err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "DELETE FROM public.projects WHERE id = $1", project); err != nil {
						return err
					}
					return tx.QueryRow(ctx, `SELECT tombstone.origin FROM public.loose_foreign_keys_deleted_records AS tombstone
						WHERE tombstone.fully_qualified_table_name = 'public.projects' AND tombstone.primary_key_value = $1`, project).Scan(&deletion)
				})
				return 1, true, problem.Doing(err, "delete the project")
			}
			var remaining int64
			if err := s.scan(ctx, query("project_rows"), []any{project}, &remaining, new(string)); err != nil || remaining > 0 {
				return 0, true, err
			}
			var err error
			restored, err = s.Undo(ctx, deletion)
			return 1, false, problem.Doing(err, "undo deletion %d", deletion)
		},
		count: func(ctx context.Context) ([]Count, error) {
			var found, changed int64
			var currentDigest string
			err := s.scan(ctx, query("project_rows"), []any{project}, &found, &currentDigest)
			if currentDigest != digest {
				changed = 1
			}
			return []Count{
				{"rows restored", restored, false},
				{"rows missing", max(0, rows-found), true},
				{"projects changed", changed, true},
			}, err
		},
	}
}
