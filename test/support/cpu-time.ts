/** Processor time that this thread has had so far, in milliseconds: other than the clock it does not count what the machine does besides. */
export function cpuTimeMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
