package definitions

import (
	_ "embed" // The go:embed directive of Schema requires the package.
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/yamlfile"
)

// Example is a minimal definitions file, for the message about a missing file.
const Example = `issues:                        # the child table
  - table: projects            # the parent table
    column: project_id         # the column of issues that references projects
    on_delete: async_delete    # or async_nullify, or update_column_to
`

// File is the content of one definitions file. Name is used in messages only.
type File struct {
	Name string
	Data []byte
}

// Load reads the definitions in files, in their order. The error is a problem.List with
// the errors of all files. The valid definitions are returned with the error, so that the
// caller can also check them against a database.
func Load(paths []string) ([]Definition, error) {
	var problems problem.List
	var files []File
	for _, path := range paths {
		data, err := yamlfile.ReadFile(path)
		if err != nil {
			problems.Errorf(problem.Position{File: path}, "", "%s", unreadable(err))
			continue
		}
		files = append(files, File{Name: path, Data: data})
	}
	definitions, err := Parse(files...)
	found, _ := errors.AsType[problem.List](err)
	problems.Add(found...)
	return definitions, problems.Err()
}

func unreadable(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the definitions file does not exist; a minimal file is\n\n" + Example
	}
	return fmt.Sprintf("the definitions file cannot be read: %v", err)
}

// Parse reads the definitions in the contents of files. It returns the same results as
// Load.
func Parse(files ...File) ([]Definition, error) {
	r := reader{}
	for _, file := range files {
		r.file(file)
	}
	r.conflicts()
	return r.definitions, r.problems.Err()
}

// Schema is the JSON schema of a definitions file. TestSchemasFollowTheStructs in package
// config writes it.
//
//go:embed schema.json
var Schema json.RawMessage

// Choices returns the names of the actions.
func (Action) Choices() []string {
	return []string{string(Delete), string(Nullify), string(UpdateColumn)}
}

// Choices returns the names of GitLab's worker classes.
func (WorkerClass) Choices() []string {
	return []string{
		"LooseForeignKeys::CleanupWorker",
		"LooseForeignKeys::CiPipelinesBuildsCleanupCronWorker",
		"LooseForeignKeys::MergeRequestDiffCommitCleanupWorker",
	}
}

// Choices returns the names of the cleaner classes.
func (CleanerClass) Choices() []string { return []string{ArtifactsCleaner} }

// reader collects the definitions and errors of all files.
type reader struct {
	definitions []Definition
	problems    problem.List
}

func (r *reader) file(file File) {
	root, problems := yamlfile.Parse(file.Name, file.Data)
	r.problems.Add(problems...)
	if root == nil {
		return
	}
	if len(root.Items) == 0 && len(problems) == 0 {
		r.problems.Errorf(root.Position.Position, "", "the file has no definitions; a minimal file is\n\n%s", Example)
	}
	for _, entries := range root.Items {
		r.child(entries)
	}
}

// child reads the list of definitions of one child table.
func (r *reader) child(entries *yamlfile.Node) {
	key, at := yamlfile.Join("", entries.Key), entries.KeyPosition
	child, err := ParseName(entries.Key)
	if err != nil {
		r.problems.Add(at.Problem(key, "the child table's name "+err.Error(), ""))
	}
	switch {
	case entries.Kind == "":
	case entries.Kind == yamlfile.List && len(entries.Items) > 0:
	case entries.Kind == yamlfile.List || entries.Kind == yamlfile.Null:
		r.problems.Add(at.Problem(key, "has no entries", ""))
		return
	default:
		r.problems.Add(entries.Problem(key, "must be a list of entries", "begin every entry with a dash"))
		return
	}
	for i, item := range entries.Items {
		r.entry(child, fmt.Sprintf("%s[%d]", key, i), item)
	}
}

// entry adds one definition if it is valid.
func (r *reader) entry(child Name, key string, item *yamlfile.Node) {
	d := Definition{Position: item.Position.Position, Key: key, Child: child}
	var problems problem.List
	d.positions, problems = item.Decode(key, &d, nil)
	c := checker{Definition: &d, problems: problems}
	c.check()
	r.problems.Add(c.problems...)
	if len(c.problems) == 0 && child != (Name{}) {
		r.definitions = append(r.definitions, d)
	}
}

// conflicts reports and removes definitions that contradict or repeat an earlier one, in
// any file.
func (r *reader) conflicts() {
	first := map[string]Definition{}
	keys := map[Name]Definition{}
	all := r.definitions
	r.definitions = nil
	for _, d := range all {
		id := identity(d)
		if earlier, twice := first[id]; twice {
			r.problems.Errorf(d.Position, d.Key, "repeats %s at %s: child %s, column %s, parent %s",
				earlier.Key, earlier.Position, d.Child, d.ColumnList(), d.Parent)
			continue
		}
		first[id] = d
		// A tombstone has one key, so all definitions of a parent must refer to the same
		// columns, in the same order. A definition without parent_column refers to the
		// primary key, whose columns are only known from the catalog.
		earlier, named := keys[d.Parent]
		if len(d.ParentColumns) > 0 && named && !slices.Equal(earlier.ParentColumns, d.ParentColumns) {
			r.problems.Errorf(d.Position, d.Key+".parent_column", "is %s, but %s at %s has %s for the same parent %s",
				strings.Join(d.ParentColumns, ", "), earlier.Key, earlier.Position,
				strings.Join(earlier.ParentColumns, ", "), d.Parent)
			continue
		}
		if len(d.ParentColumns) > 0 && !named {
			keys[d.Parent] = d
		}
		r.definitions = append(r.definitions, d)
	}
}

// identity returns a string that must be unique among definitions. It ignores the order
// of conditions.
func identity(d Definition) string {
	conditions := render.Each(d.Conditions, func(c Condition) string { return fmt.Sprintf("%q=%q", c.Column, c.Value) })
	slices.Sort(conditions)
	return fmt.Sprintf("%q %q %q %q %s", d.Database, d.Child, d.Columns, d.Parent, strings.Join(conditions, " "))
}
