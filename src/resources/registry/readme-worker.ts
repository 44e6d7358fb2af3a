import { parentPort, workerData } from 'node:worker_threads'
import { readmeFault } from './readme-fault.ts'

/** A thread of its own for one readme: started by checkReadme with the content, answers with what is wrong with it. */
parentPort?.postMessage(readmeFault(workerData as string)) // checkReadme starts it with a text
