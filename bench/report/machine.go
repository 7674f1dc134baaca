package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is where the benchmark ran.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	// MemoryMiB is the whole memory.
	MemoryMiB int64 `json:"memory_mib"`
	// LoadBefore and LoadAfter are /proc/loadavg at the beginning and at the end.
	LoadBefore string `json:"load_before"`
	LoadAfter  string `json:"load_after"`
}

// ThisMachine describes the machine; what cannot be read is left out.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown processor", Cores: runtime.NumCPU(), Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")), LoadBefore: Load()}
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	var kib int64
	if _, err := fmt.Sscanf(read("/proc/meminfo"), "MemTotal: %d kB", &kib); err == nil {
		m.MemoryMiB = kib >> 10
	}
	return m
}

// Load is the load of the machine over 1, 5 and 15 minutes.
func Load() string {
	fields := strings.Fields(read("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// String shows the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %d MiB, Linux %s · load before %s, after %s", m.CPU, m.Cores, m.MemoryMiB, m.Kernel, m.LoadBefore, m.LoadAfter)
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
