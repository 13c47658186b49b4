"""A view that sends each order as a message."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

import zhumq
from shop.orders import TOPIC, Order, send
from zhumq.client.errors import ClientError


@csrf_exempt
@require_POST
def create_order(request: HttpRequest) -> JsonResponse:
    try:
        order = zhumq.Json(Order).deserialize(TOPIC, request.body)
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=422)
    try:
        offset = send(order)
    except (TimeoutError, ClientError):
        return JsonResponse({"error": "orders are not taken at the moment"}, status=503)
    return JsonResponse({"offset": offset}, status=202)
