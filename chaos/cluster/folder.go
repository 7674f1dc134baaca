package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// diskSize has room for an empty database (40 MiB), its log (96 MiB) and what a run of some minutes leaves.
const diskSize = 512 << 20

// janitor undoes the mount when its standard input ends, however this process does.
const janitor = `trap '' INT TERM HUP; read -r _; umount -l "$1"; rmdir "$1"`

// folder is PostgreSQL's, on a disk of its own where this process may mount one.
type folder struct {
	path    string
	mounted bool
	janitor *exec.Cmd
	alive   io.Closer // the janitor's standard input
}

// newFolder also says why the folder has no disk of its own, if so.
func newFolder(credential *syscall.Credential) (_ *folder, unmounted, err error) {
	parent := os.TempDir()
	if credential != nil {
		parent = "/tmp" // where every user may go
	}
	path, err := os.MkdirTemp(parent, "waterclock-sql-")
	if err != nil {
		return nil, nil, fmt.Errorf("folder of PostgreSQL: %w", err)
	}
	f := &folder{path: path}
	if unmounted = f.mount(credential); unmounted != nil && credential != nil {
		if err := os.Chown(path, int(credential.Uid), int(credential.Gid)); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("folder of PostgreSQL: %w", err), os.Remove(path))
		}
	}
	return f, unmounted, nil
}

// mount gives the folder a disk of its own; where it returns an error, everything is as before.
func (f *folder) mount(credential *syscall.Credential) error {
	if credential == nil {
		return errors.New("only root can mount a small disk, and this is not root")
	}
	options := fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", diskSize, credential.Uid, credential.Gid)
	if err := unix.Mount("tmpfs", f.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	cmd := exec.Command("/bin/sh", "-c", janitor, "janitor", f.path)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start the janitor of a small disk: %w", err), unix.Unmount(f.path, unix.MNT_DETACH))
	}
	f.mounted, f.janitor, f.alive = true, cmd, in
	return nil
}

// remove ends the mount and removes the folder.
func (f *folder) remove() error {
	if !f.mounted {
		return os.RemoveAll(f.path)
	}
	f.mounted = false
	err := errors.Join(f.alive.Close(), f.janitor.Wait())
	if _, gone := os.Stat(f.path); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("the folder of PostgreSQL is still there: %s", f.path))
	}
	return err
}

// ballast is a file that fills the disk.
func (f *folder) ballast() string { return filepath.Join(f.path, "ballast") }

// fill takes all that is left of the disk.
func (f *folder) fill() (err error) {
	file, err := os.Create(f.ballast())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	block := make([]byte, 1<<20)
	for size := len(block); size >= 512; {
		switch _, err := file.Write(block[:size]); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			return err
		}
	}
	return nil
}

// empty gives back what fill took.
func (f *folder) empty() error {
	if err := os.Remove(f.ballast()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
