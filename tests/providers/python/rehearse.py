"""The example provider, misbehaving: what tests run in place of provider.py.

`--faults FILE` is JSON, read at each call: {method: {"before": seconds, "after": seconds, "answer": what is merged into the answer}}.
`--times FILE` gets a line for each answer: its method and how many seconds it took from when it was begun.
"""
import json, pathlib, time

import grpc
from google.protobuf import json_format

import provider


class Rehearsal(grpc.ServerInterceptor):
    def __init__(self, chosen):
        self.chosen = chosen

    def intercept_service(self, proceed, details):
        handler, method = proceed(details), details.method.rpartition("/")[2]
        if handler is None or handler.unary_unary is None:
            return handler

        def handle(request, context):
            begun = time.perf_counter()
            fault = json.loads(pathlib.Path(self.chosen.faults).read_text()).get(method, {}) if self.chosen.faults else {}
            time.sleep(fault.get("before", 0))
            answer = json_format.ParseDict(fault.get("answer", {}), handler.unary_unary(request, context))
            time.sleep(fault.get("after", 0))
            if self.chosen.times:
                with open(self.chosen.times, "a") as file:
                    file.write(f"{method} {time.perf_counter() - begun:.6f}\n")
            return answer

        return grpc.unary_unary_rpc_method_handler(handle, handler.request_deserializer, handler.response_serializer)


parser = provider.options()
parser.add_argument("--faults")
parser.add_argument("--times")
chosen = parser.parse_args()
provider.serve(chosen, Rehearsal(chosen))
