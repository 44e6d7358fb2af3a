/** Processor time of this thread so far, in milliseconds, independent of other load. */
export function cpuTimeMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

/** Returns the least processor time of three runs in milliseconds: the others include collections of the heap and compilation by Node. */
export function leastCpuMs(work: (round: number) => void): number {
  const times = [0, 1, 2].map((round) => {
    const before = cpuTimeMs()
    work(round)
    return cpuTimeMs() - before
  })
  return Math.min(...times)
}
