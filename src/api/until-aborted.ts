/** Settles as `promise`, or rejects with the signal's reason once it aborts; what `promise` does later is dropped. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => undefined)
    throw signal.reason
  }
  let stop: (() => void) | undefined
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
  })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    if (stop !== undefined) signal.removeEventListener('abort', stop)
  }
}
