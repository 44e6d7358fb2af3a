const frameHeadBytes = 8
/** raftpb.Message begins with its type: field 1, a varint. A follower forwards proposals (2) to the leader. */
const proposalStart = Buffer.from([0x08, 0x02])

/** Returns whether a message between etcd peers forwards a proposal to the leader. */
export function isProposal(message: Buffer): boolean {
  // After the length of the HTTP chunk and that of the frame.
  const at = message.indexOf('\r\n') + 2 + frameHeadBytes
  return message.subarray(at, at + proposalStart.length).equals(proposalStart)
}

/** Returns whether a request asks a member for its messages to the sender. */
export function asksForMessages(request: Buffer): boolean {
  return request.toString('latin1', 0, 64).startsWith('GET /raft/stream/message/')
}

/**
 * Splits the answer to such a request into its head and its messages, each as one HTTP chunk. So single messages can be held while others pass. The body is
 * chunked, and has each message after its length in 8 bytes (etcd's rafthttp).
 */
export class MessageSplitter {
  #raw = Buffer.alloc(0)
  #body = Buffer.alloc(0)
  #isInBody = false

  /** Returns the units that these bytes complete. */
  split(bytes: Buffer): Buffer[] {
    this.#raw = Buffer.concat([this.#raw, bytes])
    const units: Buffer[] = []
    if (!this.#isInBody) {
      const end = this.#raw.indexOf('\r\n\r\n')
      if (end < 0) return units
      units.push(this.#raw.subarray(0, end + 4))
      this.#raw = this.#raw.subarray(end + 4)
      this.#isInBody = true
    }
    while (this.#takeChunk());
    for (let message = this.#takeMessage(); message !== undefined; message = this.#takeMessage()) units.push(asChunk(message))
    return units
  }

  /** Moves the content of one complete chunk to the body. Returns false if there is none. */
  #takeChunk(): boolean {
    const lineEnd = this.#raw.indexOf('\r\n')
    if (lineEnd < 0) return false
    const length = Number.parseInt(this.#raw.toString('latin1', 0, lineEnd), 16)
    const end = lineEnd + 2 + length
    if (this.#raw.length < end + 2) return false
    this.#body = Buffer.concat([this.#body, this.#raw.subarray(lineEnd + 2, end)])
    this.#raw = this.#raw.subarray(end + 2)
    return true
  }

  #takeMessage(): Buffer | undefined {
    if (this.#body.length < frameHeadBytes) return undefined
    const end = frameHeadBytes + Number(this.#body.readBigUInt64BE())
    if (this.#body.length < end) return undefined
    const message = this.#body.subarray(0, end)
    this.#body = this.#body.subarray(end)
    return message
  }
}

function asChunk(content: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${content.length.toString(16)}\r\n`), content, Buffer.from('\r\n')])
}
