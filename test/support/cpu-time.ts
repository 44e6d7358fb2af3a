/** Processor time of this thread so far, in milliseconds, independent of other load. */
export function cpuTimeMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
