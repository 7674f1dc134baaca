//go:build !linux

package guard

import (
	"os"
	"syscall"
)

func ownBinary() (string, error) { return os.Executable() }

// Without a subreaper, descendants that left the command's process group are not found; the group itself is.
func adoptDescendants() error { return nil }

func descendants() []int { return nil }

func commandAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func preferAsOOMVictim() func() { return func() {} }
