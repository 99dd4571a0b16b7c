package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/yamlfile"
)

// proposal is the output of `sexton init --json`.
type proposal struct {
	Database string `json:"database"`
	// Chosen lists the foreign keys that have definitions in Files. Kept lists the other
	// foreign keys, with the reasons.
	Chosen []*ForeignKey `json:"chosen"`
	Kept   []*ForeignKey `json:"kept"`
	Files  []string      `json:"files"`
	// Definitions is the content of the definition file. Files is empty if no file was
	// written.
	Definitions string `json:"definitions"`
	// Indexes holds the statements that create missing indexes. Drops holds the
	// statements that drop the constraints.
	Indexes []string `json:"indexes"`
	Drops   []string `json:"drops"`
}

// notChosen is the reason for keeping a foreign key whose child --tables does not name.
const notChosen = "not chosen"

func initCommand(env *cli.Env) *cobra.Command {
	var name string
	var o initOptions
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "init",
		Short: "Propose definitions for the foreign keys of a database and write the files",
		Long: `Reads the foreign keys of a database, estimates what a deletion costs today, and writes sexton.yaml
(if it does not exist) and loose_foreign_keys.yml. It proposes a definition for each foreign key
with ON DELETE CASCADE or SET NULL. A key is kept, with the reason, if a definition would change
the result of a deletion, or if --tables does not name its child.

The database is not changed. The next steps are printed in order, SQL and shell separately.
--dry-run prints the definitions instead of writing files. --add adds definitions to existing files
and keeps their comments.`,
		Example: "  sexton init --dry-run\n  sexton init --tables issues,notes\n  sexton init --tables labels --add",
	}, func(ctx context.Context, _ []string) error {
		return env.WithAll(ctx, func(all *installation.Connections) error {
			name, err := cli.ChooseDatabase(all.Config, name)
			if err != nil {
				return err
			}
			return initialize(ctx, env, all, all.Database(name), o)
		})
	})
	cmd.Flags().StringVar(&name, "database", "", "`NAME` of the database (default: the first)")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "print the definitions and write no file")
	cmd.Flags().BoolVar(&o.add, "add", false, "add definitions to existing files")
	cmd.Flags().StringSliceVar(&o.tables, "tables", nil,
		"only foreign keys of these `CHILDREN`, named as in definitions")
	return cmd
}

// initOptions holds the flags of init.
type initOptions struct {
	tables   []string
	dry, add bool
}

func initialize(ctx context.Context, env *cli.Env, all *installation.Connections, db database.Database,
	o initOptions,
) error {
	files, existing, err := outputFiles(all.Config, o)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all.Sites(), func(site loosefk.Site) bool { return site.Name == db.Name })
	keys, err := Propose(ctx, all.Sites()[i], pgcatalog.Schema)
	if err != nil {
		return err
	}
	if err = markDefined(keys, existing, all.Config); err != nil {
		return err
	}
	if err := keepUnnamedTables(keys, o.tables); err != nil {
		return err
	}
	p := proposal{
		Database: db.Name, Chosen: Chosen(keys, nil), Kept: []*ForeignKey{}, Files: []string{},
		Indexes: []string{}, Drops: []string{},
	}
	for _, k := range keys {
		if k.Reason != "" {
			p.Kept = append(p.Kept, k)
		}
	}
	if len(p.Chosen) == 0 {
		p.Chosen = []*ForeignKey{}
		return env.Print(p, p.print)
	}
	for _, k := range p.Chosen {
		p.Drops = append(p.Drops, k.Drop())
	}
	text, err := WriteDefinitions(p.Chosen)
	if err != nil {
		return err
	}
	if p.Indexes, err = indexes(ctx, all, db, text); err != nil {
		return err
	}
	if len(existing) > 0 {
		if text, err = add(ctx, all, files[0], existing, text); err != nil {
			return err
		}
	} else {
		text = append([]byte("# Written by sexton init. All keys: docs/definitions.md\n"), text...)
	}
	p.Definitions = string(text)
	if !o.dry {
		if err := writeFiles(files, text, all.Config); err != nil {
			return err
		}
		p.Files = files
	}
	return env.Print(p, p.print)
}

// keepUnnamedTables keeps the foreign keys whose child tables --tables does not name. It
// returns an error if --tables names a table without a replaceable foreign key.
func keepUnnamedTables(keys []*ForeignKey, tables []string) error {
	offered := Chosen(keys, nil)
	children := render.Each(offered, func(k *ForeignKey) string { return k.Child })
	for _, table := range tables {
		if !slices.Contains(children, table) {
			return cli.Usage(fmt.Errorf("--tables %s: no foreign key of that table can be replaced by a definition%s",
				table, problem.Suggestion(table, children)))
		}
	}
	for _, k := range offered {
		if len(tables) > 0 && !slices.Contains(tables, k.Child) {
			k.Reason = notChosen
		}
	}
	return nil
}

// indexes returns the statements that create the missing indexes for the given
// definitions.
func indexes(ctx context.Context, all *installation.Connections, db database.Database, text []byte) ([]string, error) {
	defs, err := definitions.Parse(definitions.File{Name: "proposed", Data: text})
	if err != nil {
		return nil, err
	}
	parents, _, err := loosefk.Resolve(ctx, all.Sites(), defs)
	if err != nil {
		return nil, err
	}
	missing, err := components.MissingIndexes(ctx, all, db, parents)
	return render.Each(missing, func(p problem.Problem) string { return p.Fix }), err
}

// markDefined keeps the foreign keys that already have a definition.
func markDefined(keys []*ForeignKey, existing []byte, c *config.Config) error {
	if blank(existing) {
		return nil
	}
	defs, err := installation.LoadDefinitions(c)
	for _, k := range Chosen(keys, nil) {
		child, _ := definitions.ParseName(k.Child)
		parent, _ := definitions.ParseName(k.Parent)
		if slices.ContainsFunc(defs, func(d definitions.Definition) bool {
			return d.Child == child && d.Parent == parent &&
				slices.Equal(slices.Sorted(slices.Values(d.Columns)), slices.Sorted(slices.Values(k.Columns)))
		}) {
			k.Reason = "it has a definition"
		}
	}
	return err
}

// add returns the existing definition file with the definitions of text added. It returns
// an error if the result, together with the other definition files, is invalid or does
// not fit the databases.
func add(ctx context.Context, all *installation.Connections, path string, existing, text []byte) ([]byte, error) {
	merged, err := merge(existing, text)
	if err != nil {
		return nil, problem.Doing(err, "add to %s", path)
	}
	files := []definitions.File{{Name: path, Data: merged}}
	for _, other := range all.Config.LooseForeignKeys.Definitions[1:] {
		data, err := yamlfile.ReadFile(other)
		if err != nil {
			return nil, problem.Doing(err, "read %s", other)
		}
		files = append(files, definitions.File{Name: other, Data: data})
	}
	defs, err := definitions.Parse(files...)
	if err != nil {
		return nil, err
	}
	_, problems, err := loosefk.Resolve(ctx, all.Sites(), defs)
	return merged, cmp.Or(err, problems.Err())
}

// outputFiles returns the paths of the files to write: the configured definition file,
// and a configuration file if there is none. existing is the content of the definition
// file.
func outputFiles(c *config.Config, o initOptions) (paths []string, existing []byte, err error) {
	if len(c.LooseForeignKeys.Definitions) == 0 {
		return nil, nil,
			cli.Usage(errors.New("loose_foreign_keys.definitions names no file to write; remove the key, or name one"))
	}
	paths = c.LooseForeignKeys.Definitions[:1:1]
	if existing, err = os.ReadFile(paths[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if len(existing) > 0 && !o.add && !o.dry {
		return nil, nil, cli.Usage(fmt.Errorf("%s exists: --add adds keys to it, --dry-run prints what would be added",
			paths[0]))
	}
	if c.Path == "" {
		paths = append(paths, config.DefaultFile)
	}
	return paths, existing, nil
}

func writeFiles(paths []string, text []byte, c *config.Config) error {
	contents := []string{string(text), "# Written by sexton init. All keys: docs/configuration.md\n" + configuration(c)}
	for i, path := range paths {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
		// A new file is readable by all users, because another user may run the worker.
		// The files contain no secrets.
		mode := fs.FileMode(0o644)
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
		// Renaming replaces the file atomically, so that a concurrent reader never reads
		// half a file.
		next := path + ".new"
		err := os.WriteFile(next, []byte(contents[i]), mode)
		if err == nil {
			err = os.Rename(next, path)
		}
		if err != nil {
			return problem.Doing(err, "write %s", path)
		}
	}
	return nil
}

// configuration returns the content of a sexton.yaml with the current databases and
// definition files. It refers to the variables of the URLs, because a URL may contain a
// password.
func configuration(c *config.Config) string {
	databases := render.Each(c.DatabaseNames(), func(name string) string {
		return fmt.Sprintf("  %s: {url: \"${%s}\"}\n", name, c.URLVariable(name))
	})
	files := render.Each(c.LooseForeignKeys.Definitions, strconv.Quote)
	return "databases:\n" + strings.Join(databases, "") + "loose_foreign_keys: {definitions: [" + strings.Join(files,
		", ") + "]}\n"
}

func printKeys(w io.Writer, keys []*ForeignKey) {
	render.Table(w, "CHILD\tCOLUMN\tPARENT\tBECOMES\tROWS\tA DELETION TODAY", keys, func(k *ForeignKey) []any {
		rows := render.Grouped(k.Rows)
		if k.Rows == 0 && k.Bytes > 0 {
			rows = "unknown"
		}
		return []any{k.Child, render.Listed(k.Columns), k.Parent, k.OnDelete, rows, cost(k)}
	})
	_, _ = fmt.Fprintln(w,
		"\nRow counts are estimates of the last ANALYZE, without the rows below the child.")
}

// cost returns a text about the time that the foreign key adds to a deletion of a parent.
func cost(k *ForeignKey) string {
	text := "waits for its rows (run ANALYZE for an estimate)"
	if k.PerParent > 0 {
		text = fmt.Sprintf("waits for about %s, %s for the largest parent", render.Counted(k.PerParent, "row"),
			render.Grouped(k.Most))
	}
	if !k.Indexed {
		text += fmt.Sprintf("; reads all %d MB, without an index", (k.Bytes+1<<20-1)>>20)
	}
	return text
}

func (p *proposal) print(w io.Writer) {
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if len(p.Kept) > 0 {
		render.Table(w, "KEPT\tCOLUMN\tPARENT\tREASON", p.Kept,
			func(k *ForeignKey) []any { return []any{k.Child, render.Listed(k.Columns), k.Parent, k.Reason} })
		printf("")
	}
	if len(p.Chosen) == 0 {
		printf("%s: no foreign key was chosen and no file was written. Only keys with ON DELETE CASCADE or SET NULL are proposed", p.Database)
		return
	}
	printKeys(w, p.Chosen)
	if len(p.Files) == 0 {
		printf("\nNo file was written. The definitions:\n\n%s", p.Definitions)
	} else {
		printf("\nwritten: %s", render.Listed(p.Files))
	}
	printf("\nNext steps, in this order. All but CREATE INDEX can be repeated:\n")
	if len(p.Indexes) > 0 {
		printf("-- SQL: create the missing indexes. If one fails, sexton plan prints how to repair it\n%s\n", strings.Join(p.Indexes, "\n"))
	}
	printf("# Shell: install tables, privileges and triggers. Until the foreign keys are dropped, they still delete the children")
	printf("sexton migrate up\nsexton grants --worker WORKER --app APP --apply\nsexton triggers install\n")
	printf("-- SQL: while a worker (sexton run) is running, drop the foreign keys. A statement that waits longer than 2 s for a lock fails: run it again")
	printf("SET lock_timeout = '2s';\n%s\n", strings.Join(p.Drops, "\n"))
	printf("# Shell: find children that were inserted without their parent meanwhile\nsexton audit\n")
	printf("# Shell: to go back, print SQL that adds the foreign keys again\nsexton definitions foreign-keys")
}
